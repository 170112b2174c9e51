//! Tokens of a target's devices: no more are spent than are generated, and nothing is done that was
//! not paid for.

use crate::storage::flat_device;
use base::{Nanos, Time};
use qos::TokenRate;
use std::collections::BTreeMap;
use std::sync::Arc;
use target::{DeviceQos, Target, TenantStats};

/// Interval between two looks.
const INTERVAL: Nanos = Nanos::from_millis(200);

/// Counters are so much older than the time at which they are read, at most, and tokens of so long
/// may be saved, lent or advanced.
const SLACK: Nanos = Nanos::from_millis(200);

/// Tokens that may be overdrawn by the requests under way.
const OVERDRAFT: u64 = 400;

/// Cost of the least request, in thousandths of a token: a read of 4 KiB is one by definition.
const PRICE_MILLI: u64 = 1_000;

/// Device latency at every load.
const LATENCY: Nanos = Nanos::from_micros(50);

/// The tokens of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Spending {
    /// Tokens spent at the last look, in thousandths.
    spent: u64,
    /// Tokens spent beyond those generated since the look for which that is most, in thousandths.
    excess: u64,
}

/// The books of one process.
#[derive(Debug)]
pub(super) struct Audit {
    target: Option<Arc<Target>>,
    rate: u64,
    looked_at: Time,
    /// No tenant has left, with what it was counted.
    complete: bool,
    /// Each device, by its name.
    devices: BTreeMap<String, Spending>,
}

impl Audit {
    /// Makes the counts of a process that begins, with devices that generate so many tokens a
    /// second; 0 where they are not scheduled.
    pub(super) const fn new(now: Time, rate: u64) -> Self {
        Self {
            target: None,
            rate,
            looked_at: now,
            complete: true,
            devices: BTreeMap::new(),
        }
    }

    /// A device of the process, if they are scheduled.
    pub(super) fn device(&mut self, nsid: u32) -> Option<Arc<DeviceQos>> {
        if self.rate == 0 {
            return None;
        }
        let name = format!("disk{nsid}");
        Some(flat_device(&name, TokenRate(self.rate), LATENCY))
    }

    /// The process runs.
    pub(super) fn watch(&mut self, target: &Arc<Target>) {
        self.target = Some(Arc::clone(target)).filter(|_| self.rate > 0);
    }

    /// Forgets the counts of tenants that are gone, after the tenants have changed.
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

    /// Returns the time of the next [look](Self::look).
    pub(super) fn next_look(&self) -> Time {
        let next = self.target.as_ref().map(|_| self.looked_at + INTERVAL);
        next.unwrap_or(Time::NEVER)
    }

    /// Looks at what was spent since the last time, if that is long ago.
    ///
    /// # Panics
    /// If since some earlier look more was spent than was generated.
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

    /// Thousandths of a token that a device generates in that time.
    fn milli_in(&self, span: Nanos) -> u64 {
        let milli = u128::from(self.rate) * u128::from(span.0) / 1_000_000;
        u64::try_from(milli).expect("days of tokens")
    }

    /// Nothing is under way any more.
    ///
    /// # Panics
    /// If something was done without being paid for.
    pub(super) fn end(&self) {
        for (name, tenants) in self.totals().iter().filter(|_| self.complete) {
            // What was paid by one tenant may be done when its host is another one.
            let done: u64 = tenants.iter().map(|stats| stats.reads + stats.writes).sum();
            let spent: u64 = tenants.iter().map(|stats| stats.spent_milli).sum();
            assert!(
                spent >= done * PRICE_MILLI,
                "{done} requests to {name} were done for {spent} thousandths of a token"
            );
        }
    }
}
