//! Record of a tenant on a device: its SLO, the counters of every core, and the SLO windows met and
//! missed.
//!
//! Owned by the device's [register](crate::DeviceQos) and shared with the cores, which write their
//! own counters and read the SLO's latency. A control plane checks each tenant once per window
//! ([`Target::look_at_tenants`](crate::Target::look_at_tenants)). Invariant: counts are kept when a
//! connection ends.

use crate::events::Demand;
use crate::latency::{SharedTenantLatency, TenantLatency};
use crate::stats::{SharedTenantStats, TenantStats};
use base::Nanos;
use qos::account::Contract;
use qos::limits::{OVERRUN_WINDOW, OVERRUN_WINDOWS};
use qos::overrun::{Notice, Overrun};
use qos::{Account, Declaration, Slo};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct TenantRecord {
    /// The SLO's read latency in nanoseconds; 0: none.
    promised_ns: AtomicU64,
    /// Reads that may be late, in thousandths.
    late_permille: AtomicU32,
    /// Counters of each core that ever served the tenant.
    cores: Mutex<BTreeMap<usize, Arc<CoreRecord>>>,
    looked: Mutex<Looked>,
}

/// Counters of one core.
#[derive(Debug, Default)]
pub(crate) struct CoreRecord {
    pub(crate) stats: SharedTenantStats,
    pub(crate) latency: SharedTenantLatency,
}

/// Results of the control plane's checks.
#[derive(Debug, Default)]
struct Looked {
    overrun: Overrun,
    /// Demand at the last checks, oldest first.
    asked: VecDeque<Asked>,
    windows: Windows,
    /// The counters at the beginning of the current window.
    slo_reads: u64,
    late_reads: u64,
}

/// Demand of a tenant at one check.
#[derive(Clone, Copy, Debug)]
struct Asked {
    spent_milli: u64,
    done: u64,
    waiting: u64,
}

/// SLO windows of 1 s in which a latency-critical tenant read data, by whether the SLO was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Windows {
    /// Windows in which the SLO's percentile of reads met its latency.
    #[serde(rename = "windows_met")]
    pub met: u64,
    /// Windows in which it did not.
    #[serde(rename = "windows_missed")]
    pub missed: u64,
}

impl TenantRecord {
    /// Returns the SLO's read latency, if any.
    #[inline]
    pub(crate) fn promised(&self) -> Option<Nanos> {
        match self.promised_ns.load(Ordering::Relaxed) {
            0 => None,
            promised => Some(Nanos(promised)),
        }
    }

    /// Returns the reads that may exceed the SLO's latency, in thousandths.
    pub(crate) fn late_permille(&self) -> u32 {
        self.late_permille.load(Ordering::Relaxed)
    }

    /// Sets the tenant's declaration.
    pub(crate) fn declare(&self, declaration: &Declaration) {
        let (promised, late) = match declaration {
            Declaration::LatencyCritical(slo) => (slo.latency.0, 1000 - slo.percentile.permille()),
            Declaration::BestEffort(_) => (0, 0),
        };
        self.late_permille.store(late, Ordering::Relaxed);
        self.promised_ns.store(promised, Ordering::Relaxed);
    }

    /// Returns the counters of a core.
    pub(crate) fn core(&self, index: usize) -> Arc<CoreRecord> {
        Arc::clone(lock(&self.cores).entry(index).or_default())
    }

    /// Returns the counters summed over all cores.
    pub(crate) fn total(&self) -> (TenantStats, TenantLatency) {
        let mut stats = TenantStats::default();
        let mut latency = TenantLatency::default();
        for core in lock(&self.cores).values() {
            stats.add(&core.stats.load());
            latency.add(&core.latency.load());
        }
        (stats, latency)
    }

    /// Returns the counters summed over all cores, without latencies.
    fn stats(&self) -> TenantStats {
        let mut stats = TenantStats::default();
        for core in lock(&self.cores).values() {
            stats.add(&core.stats.load());
        }
        stats
    }

    /// Compares the tenant's demand with its SLO. Returns a notice if the result changed, and the
    /// demand over the preceding checks.
    pub(crate) fn look(&self, account: &Account) -> Option<(Notice, Demand)> {
        let stats = self.stats();
        let mut looked = lock(&self.looked);
        if looked.asked.len() > OVERRUN_WINDOWS as usize {
            looked.asked.pop_front();
        }
        looked.asked.push_back(Asked {
            spent_milli: stats.spent_milli,
            done: stats.reads + stats.writes + stats.others + stats.errors,
            waiting: stats.waiting,
        });
        let notice = looked.overrun.look(account.limited_rounds())?;
        let reserved_milli = match account.contract() {
            Contract::LatencyCritical(rate) => rate.0.saturating_mul(1000),
            Contract::BestEffort(_) | Contract::Closed => 0,
        };
        let demand = Demand {
            reserved_milli,
            ..demand(&looked.asked)
        };
        Some((notice, demand))
    }

    /// Ends a window in which the tenant had the SLO `slo`.
    pub(crate) fn end_window(&self, slo: &Slo) {
        let (stats, _) = self.total();
        let mut looked = lock(&self.looked);
        let reads = stats.slo_reads.wrapping_sub(looked.slo_reads);
        let late = stats.late_reads.wrapping_sub(looked.late_reads);
        looked.slo_reads = stats.slo_reads;
        looked.late_reads = stats.late_reads;
        if reads == 0 {
            return;
        }
        // Cores publish one counter after the other, so the two may be of slightly different times.
        let allowed = u64::from(1000 - slo.percentile.permille());
        if late.saturating_mul(1000) <= reads.saturating_mul(allowed) {
            looked.windows.met += 1;
        } else {
            looked.windows.missed += 1;
        }
    }

    /// Returns true if its demand exceeds its SLO, and the counts of SLO windows.
    pub(crate) fn judged(&self) -> (bool, Windows) {
        let looked = lock(&self.looked);
        (looked.overrun.is_on(), looked.windows)
    }
}

/// Returns the demand from the first check to the last.
fn demand(looks: &VecDeque<Asked>) -> Demand {
    let (Some(first), Some(last)) = (looks.front(), looks.back()) else {
        return Demand::default();
    };
    let spent = last.spent_milli.saturating_sub(first.spent_milli);
    let done = last.done.saturating_sub(first.done);
    let came_to_wait = last.waiting.saturating_sub(first.waiting);
    let price = spent.checked_div(done).unwrap_or(0);
    let asked = spent.saturating_add(came_to_wait.saturating_mul(price));
    let looks = u64::try_from(looks.len() - 1).expect("a few");
    let window_ms = OVERRUN_WINDOW.as_millis() * looks;
    Demand {
        window_ms: u32::try_from(window_ms).unwrap_or(u32::MAX),
        reserved_milli: 0,
        asked_milli: asked
            .saturating_mul(1000)
            .checked_div(window_ms)
            .unwrap_or(0),
        waiting: last.waiting,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain numbers, which a panicking thread cannot leave invalid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Percentile;

    const SLO: Slo = Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_micros(500),
        iops: 1000,
        read_permille: 1000,
        request_bytes: 4096,
    };

    #[test]
    fn what_waits_is_asked_for_at_the_price_of_what_was_done() {
        let look = |spent, done, waiting| Asked {
            spent_milli: spent,
            done,
            waiting,
        };
        assert_eq!(demand(&VecDeque::new()), Demand::default());
        let one = VecDeque::from([look(7, 1, 0)]);
        assert_eq!(demand(&one).asked_milli, 0, "no time has passed");
        // 100 commands at 2 tokens within 200 ms, and 50 more that wait.
        let looks = [
            look(1000, 10, 5),
            look(5000, 20, 99),
            look(201_000, 110, 55),
        ];
        let asked = demand(&looks.into());
        assert_eq!((asked.window_ms, asked.waiting), (200, 55));
        assert_eq!(asked.asked_milli, 1_500_000);
    }

    #[test]
    fn a_window_is_judged_by_its_own_reads_of_all_cores() {
        let record = TenantRecord::default();
        record.declare(&Declaration::LatencyCritical(SLO));
        assert_eq!(record.promised(), Some(SLO.latency));
        let mut counted = [TenantStats::default(); 2];
        let mut window = |reads: [u64; 2], late: [u64; 2]| {
            for core in 0..2 {
                counted[core].slo_reads += reads[core];
                counted[core].late_reads += late[core];
                record.core(core).stats.publish(&counted[core]);
            }
            record.end_window(&SLO);
            record.judged().1
        };
        let windows = |met, missed| Windows { met, missed };
        assert_eq!(window([60, 40], [5, 0]), windows(1, 0), "5 of 100");
        assert_eq!(window([60, 40], [5, 1]), windows(1, 1), "6 of 100");
        assert_eq!(window([0, 0], [0, 0]), windows(1, 1), "nobody read");
        assert_eq!(window([0, 1], [0, 0]), windows(2, 1));
    }
}
