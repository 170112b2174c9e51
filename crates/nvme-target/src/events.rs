//! Events for the operator: a tenant exceeds its SLO `[ReFlex §4.3]`, or a host could not prove its
//! name.
//!
//! The target keeps the last ones, numbered, for the control plane. Invariant: their number is
//! bounded, and refused hosts drop at most half of the others.

use crate::limits::EVENTS_MAX;
use qos::overrun::Notice;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::IpAddr;

/// An event of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetEvent {
    /// Number of the event among all events of the target, from 1 on, without gaps.
    pub number: u64,
    /// Time, in milliseconds since 1970 by this machine's clock.
    pub unix_ms: u64,
    /// Kind of the event, and its details.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kind of an event, with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// The demand of a latency-critical tenant keeps exceeding its SLO on a device.
    OverrunBegan(Overrun),
    /// The demand of the tenant is within its SLO again.
    OverrunEnded(Overrun),
    /// A host did not prove its name.
    AuthenticationRefused(RefusedHost),
}

/// A tenant and its demand on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    /// The tenant's name.
    pub tenant: String,
    /// The device's name.
    pub device: String,
    /// Demand of the tenant.
    #[serde(flatten)]
    pub demand: Demand,
}

/// A host that did not prove its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedHost {
    /// The NQN that it claims; `None` if it is unknown.
    pub host: Option<String>,
    /// Its address.
    pub address: IpAddr,
    /// The failed step, and why.
    pub reason: String,
}

/// Demand of a tenant, and its SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Length of the observation, in milliseconds.
    pub window_ms: u32,
    /// Reserved thousandths of a token per second; displayed in whole tokens.
    #[serde(rename = "reserved_tokens_per_second", with = "whole_tokens")]
    pub reserved_milli: u64,
    /// Demanded thousandths of a token per second: the tokens spent, and newly waiting commands at
    /// the average price of those spent.
    #[serde(rename = "asked_tokens_per_second", with = "whole_tokens")]
    pub asked_milli: u64,
    /// Commands that waited for tokens at the end of the observation.
    pub waiting: u64,
}

/// Thousandths of tokens, serialised as whole tokens.
mod whole_tokens {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(super) fn serialize<S: Serializer>(milli: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(milli / 1000)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Ok(u64::deserialize(deserializer)?.saturating_mul(1000))
    }
}

impl Overrun {
    /// Returns the kind of the event for a notice.
    pub(crate) fn of(self, notice: Notice) -> EventKind {
        match notice {
            Notice::Began => EventKind::OverrunBegan(self),
            Notice::Ended => EventKind::OverrunEnded(self),
        }
    }
}

/// The last events of a target.
#[derive(Debug, Default)]
pub(crate) struct TargetEvents {
    last: u64,
    kept: VecDeque<TargetEvent>,
}

impl TargetEvents {
    /// Adds an event of this time. At the limit, the oldest one is dropped: of refused hosts if they
    /// are half of all.
    pub(crate) fn push(&mut self, unix_ms: u64, kind: EventKind) {
        self.last += 1;
        if self.kept.len() == EVENTS_MAX {
            let is_refused =
                |event: &TargetEvent| matches!(event.kind, EventKind::AuthenticationRefused(_));
            let refused = self.kept.iter().filter(|event| is_refused(event)).count();
            let oldest = self.kept.iter().position(is_refused);
            let oldest = oldest.filter(|_| refused >= EVENTS_MAX / 2);
            self.kept.remove(oldest.unwrap_or_default());
        }
        self.kept.push_back(TargetEvent {
            number: self.last,
            unix_ms,
            kind,
        });
    }

    /// Returns the kept events with numbers above this one, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<TargetEvent> {
        let after = self.kept.iter().filter(|event| event.number > number);
        after.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn overrun() -> EventKind {
        EventKind::OverrunBegan(Overrun {
            tenant: "a".to_owned(),
            device: "flash".to_owned(),
            demand: Demand::default(),
        })
    }

    fn refused() -> EventKind {
        EventKind::AuthenticationRefused(RefusedHost {
            host: None,
            address: Ipv4Addr::LOCALHOST.into(),
            reason: "a wrong secret".to_owned(),
        })
    }

    #[test]
    fn the_newest_events_are_kept_and_numbered() {
        let mut events = TargetEvents::default();
        for _ in 0..EVENTS_MAX + 3 {
            events.push(5, overrun());
        }
        let all = events.after(0);
        assert_eq!((all.len(), all[0].number), (EVENTS_MAX, 4));
        let last = EVENTS_MAX as u64 + 3;
        assert_eq!(all.last().map(|event| event.number), Some(last));
        assert_eq!(events.after(last - 1).len(), 1);
        assert!(events.after(last).is_empty());
    }

    #[test]
    fn refused_hosts_leave_half_of_the_others() {
        let mut events = TargetEvents::default();
        for _ in 0..EVENTS_MAX {
            events.push(5, overrun());
        }
        for _ in 0..3 * EVENTS_MAX {
            events.push(6, refused());
        }
        let all = events.after(0);
        let overruns = all.iter().filter(|event| event.unix_ms == 5).count();
        assert_eq!((all.len(), overruns), (EVENTS_MAX, EVENTS_MAX / 2));
    }
}
