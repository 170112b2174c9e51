//! Events in words.

use super::Shown;
use base::printable;
use control::api::Events;
use control::snapshot::{EventKind, TargetEvent};
use std::fmt;

impl fmt::Display for Shown<'_, Events> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.events.is_empty() {
            return f.write_str("no events");
        }
        let lines = self.0.events.iter().map(|event| Shown(event).to_string());
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// One line.
impl fmt::Display for Shown<'_, TargetEvent> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.0.number)?;
        match &self.0.kind {
            EventKind::OverrunBegan(overrun) => {
                let [tenant, device] =
                    [&overrun.tenant, &overrun.device].map(|name| printable(name));
                let demand = &overrun.demand;
                write!(
                    f,
                    "{tenant} exceeds the rate of its SLO on {device}: {} tokens/s over {} ms, {} \
                     reserved, {} commands waiting",
                    demand.asked_milli / 1000,
                    demand.window_ms,
                    demand.reserved_milli / 1000,
                    demand.waiting
                )
            }
            EventKind::OverrunEnded(overrun) => {
                let [tenant, device] =
                    [&overrun.tenant, &overrun.device].map(|name| printable(name));
                write!(
                    f,
                    "{tenant} is within the rate of its SLO on {device} again"
                )
            }
            EventKind::AuthenticationRefused(refused) => {
                let host = printable(refused.host.as_deref().unwrap_or("a host"));
                let reason = printable(&refused.reason);
                let address = refused.address;
                write!(f, "refused {host} at {address}: {reason}")
            }
        }
    }
}
