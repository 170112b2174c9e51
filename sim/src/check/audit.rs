//! Audits the tokens of a target's devices: no more are spent than generated, and every request is
//! charged.

use crate::storage::flat_device;
use base::{Nanos, Time};
use qos::TokenRate;
use std::collections::BTreeMap;
use std::sync::Arc;
use target::{DeviceQos, Target, TenantStats};

/// Interval between two audits.
const INTERVAL: Nanos = Nanos::from_millis(200);

/// Maximum age of a counter when it is read, and maximum time whose tokens are saved, lent or
/// advanced.
const SLACK: Nanos = Nanos::from_millis(200);

/// Tokens that outstanding requests may overdraw.
const OVERDRAFT: u64 = 400;

/// Cost of the cheapest request, in thousandths of a token: a 4 KiB read is one token by
/// definition.
const PRICE_MILLI: u64 = 1_000;

/// Device latency at every load.
const LATENCY: Nanos = Nanos::from_micros(50);

/// The tokens of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Spending {
    /// Tokens spent as of the last audit, in thousandths.
    spent: u64,
    /// Tokens spent beyond those generated, in thousandths, maximised over all earlier audits as
    /// the start.
    excess: u64,
}

/// The audit of one process.
#[derive(Debug)]
pub(super) struct Audit {
    target: Option<Arc<Target>>,
    rate: u64,
    looked_at: Time,
    /// False after a tenant was removed with its counters.
    complete: bool,
    /// Devices by name.
    devices: BTreeMap<String, Spending>,
}

impl Audit {
    /// Starts the audit of a process whose devices generate `rate` tokens per second; 0 if they are
    /// not scheduled.
    pub(super) const fn new(now: Time, rate: u64) -> Self {
        Self {
            target: None,
            rate,
            looked_at: now,
            complete: true,
            devices: BTreeMap::new(),
        }
    }

    /// Returns a device of the process if its devices are scheduled.
    pub(super) fn device(&mut self, nsid: u32) -> Option<Arc<DeviceQos>> {
        if self.rate == 0 {
            return None;
        }
        let name = format!("disk{nsid}");
        Some(flat_device(&name, TokenRate(self.rate), LATENCY))
    }

    /// Sets the process to audit.
    pub(super) fn watch(&mut self, target: &Arc<Target>) {
        self.target = Some(Arc::clone(target)).filter(|_| self.rate > 0);
    }

    /// Drops the counters of removed tenants after a change of tenants.
    pub(super) fn tenants_change(&mut self) {
        self.complete = false;
    }

    fn totals(&self) -> Vec<(String, Vec<TenantStats>)> {
        let Some(target) = &self.target else {
            return Vec::new();
        };
        let devices = target.devices().into_iter();
        let stats = devices.map(|device| {
            let stats = device.tenants.into_iter().map(|tenant| tenant.stats);
            (device.name, stats.collect())
        });
        stats.collect()
    }

    /// Returns the time of the next [audit](Self::look).
    pub(super) fn next_look(&self) -> Time {
        let next = self.target.as_ref().map(|_| self.looked_at + INTERVAL);
        next.unwrap_or(Time::NEVER)
    }

    /// Audits the tokens spent since the last audit, if the interval has passed.
    ///
    /// # Panics
    /// If since some earlier audit more tokens were spent than generated.
    pub(super) fn look(&mut self, now: Time) {
        if now < self.next_look() {
            return;
        }
        let span = now.since(self.looked_at);
        self.looked_at = now;
        let generated = self.milli_in(span);
        let most = self.milli_in(SLACK) + OVERDRAFT * 1_000;
        for (name, tenants) in self.totals() {
            let spent: u64 = tenants.iter().map(|stats| stats.spent_milli).sum();
            let device = self.devices.entry(name).or_default();
            let lately = spent.saturating_sub(device.spent);
            device.spent = spent;
            device.excess = (device.excess + lately).saturating_sub(generated);
            assert!(
                device.excess <= most,
                "{} tokens were spent that were not generated, at {} a second",
                device.excess / 1_000,
                self.rate
            );
        }
    }

    /// Tokens that a device generates in `span`, in thousandths.
    fn milli_in(&self, span: Nanos) -> u64 {
        let milli = u128::from(self.rate) * u128::from(span.0) / 1_000_000;
        u64::try_from(milli).expect("days of tokens")
    }

    /// Checks the totals when no request is outstanding.
    ///
    /// # Panics
    /// If a request was not charged.
    pub(super) fn end(&self) {
        for (name, tenants) in self.totals().iter().filter(|_| self.complete) {
            // A request charged to one tenant may complete after its host has changed to another
            // tenant.
            let done: u64 = tenants.iter().map(|stats| stats.reads + stats.writes).sum();
            let spent: u64 = tenants.iter().map(|stats| stats.spent_milli).sum();
            assert!(
                spent >= done * PRICE_MILLI,
                "{done} requests to {name} were done for {spent} thousandths of a token"
            );
        }
    }
}
