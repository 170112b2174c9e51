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
            return f.write_str("no tenant has asked for more than it was promised");
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
                "{number}: {tenant} asks for more than it is promised on {device}: {} tokens/s \
                 over {} ms, {} promised, {} commands wait",
                demand.asked_milli / 1000,
                demand.window_ms,
                demand.promised_milli / 1000,
                demand.waiting
            ),
            TenantEventKind::OverrunEnded => write!(
                f,
                "{number}: {tenant} keeps to its promise on {device} again"
            ),
        }
    }
}
