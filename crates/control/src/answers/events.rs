//! Answers about events of tenants.

use crate::snapshot::{TenantEvent, TenantEventKind};
use base::printable;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Events after the one that was named.
#[derive(Debug, Serialize, Deserialize)]
pub struct Events {
    /// The events, in the order of their numbers.
    pub events: Vec<TenantEvent>,
    /// The number of the last one; without events the number that was named.
    pub last: u64,
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            return f.write_str("no tenant has exceeded the rate of its SLO");
        }
        let lines = self.events.iter().map(|event| EventLine(event).to_string());
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// An event, on one line.
#[derive(Debug)]
pub struct EventLine<'a>(pub &'a TenantEvent);

impl fmt::Display for EventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TenantEvent { number, demand, .. } = self.0;
        let [tenant, device] = [&self.0.tenant, &self.0.device].map(|name| printable(name));
        match self.0.kind {
            TenantEventKind::OverrunBegan => write!(
                f,
                "{number}: {tenant} exceeds the rate of its SLO on {device}: {} tokens/s over {} \
                 ms, {} reserved, {} commands waiting",
                demand.asked_milli / 1000,
                demand.window_ms,
                demand.promised_milli / 1000,
                demand.waiting
            ),
            TenantEventKind::OverrunEnded => write!(
                f,
                "{number}: {tenant} is within the rate of its SLO on {device} again"
            ),
        }
    }
}
