//! Events of tenants in words.

use super::Shown;
use base::printable;
use control::api::Events;
use control::snapshot::{TenantEvent, TenantEventKind};
use std::fmt;

impl fmt::Display for Shown<'_, Events> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.events.is_empty() {
            return f.write_str("no tenant has exceeded the rate of its SLO");
        }
        let lines = self.0.events.iter().map(|event| Shown(event).to_string());
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// One line.
impl fmt::Display for Shown<'_, TenantEvent> {
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
                demand.reserved_milli / 1000,
                demand.waiting
            ),
            TenantEventKind::OverrunEnded => write!(
                f,
                "{number}: {tenant} is within the rate of its SLO on {device} again"
            ),
        }
    }
}
