//! Events of tenants: a tenant began or ceased to exceed its SLO. `[ReFlex §4.3]`
//!
//! A device's register creates the events ([`DeviceQos::look`](crate::DeviceQos)); the target keeps
//! the last ones, numbered, for the control plane. Invariant: their number is bounded.

use crate::limits::TENANT_EVENTS_MAX;
use qos::overrun::Notice;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An event of a latency-critical tenant on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEvent {
    /// Number of the event among all events of the target, from 1 on, without gaps.
    pub number: u64,
    /// Time, in milliseconds since 1970 by this machine's clock.
    pub unix_ms: u64,
    /// The tenant's name.
    pub tenant: String,
    /// The device's name.
    pub device: String,
    /// Kind of the event.
    pub kind: TenantEventKind,
    /// Demand of the tenant.
    #[serde(flatten)]
    pub demand: Demand,
}

/// The kind of a tenant's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantEventKind {
    /// Its demand keeps exceeding its SLO.
    OverrunBegan,
    /// Its demand is within its SLO again.
    OverrunEnded,
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

impl From<Notice> for TenantEventKind {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Began => Self::OverrunBegan,
            Notice::Ended => Self::OverrunEnded,
        }
    }
}

/// The last events of a target.
#[derive(Debug, Default)]
pub(crate) struct TenantEvents {
    last: u64,
    kept: VecDeque<TenantEvent>,
}

impl TenantEvents {
    /// Adds an event with the next number; the oldest one is dropped at the limit.
    pub(crate) fn push(&mut self, mut event: TenantEvent) {
        self.last += 1;
        event.number = self.last;
        if self.kept.len() == TENANT_EVENTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
    }

    /// Returns the kept events with numbers above this one, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<TenantEvent> {
        let after = self.kept.iter().filter(|event| event.number > number);
        after.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_kept_and_numbered() {
        let mut events = TenantEvents::default();
        for _ in 0..TENANT_EVENTS_MAX + 3 {
            events.push(TenantEvent {
                number: 0,
                unix_ms: 5,
                tenant: "a".to_owned(),
                device: "flash".to_owned(),
                kind: Notice::Began.into(),
                demand: Demand::default(),
            });
        }
        let all = events.after(0);
        assert_eq!((all.len(), all[0].number), (TENANT_EVENTS_MAX, 4));
        let last = TENANT_EVENTS_MAX as u64 + 3;
        assert_eq!(all.last().map(|event| event.number), Some(last));
        assert_eq!(events.after(last - 1).len(), 1);
        assert!(events.after(last).is_empty());
    }
}
