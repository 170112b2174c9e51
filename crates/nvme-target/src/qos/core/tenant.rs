//! A tenant on one core: its waiting commands for a device, and its counters.

use crate::latency::TenantLatency;
use crate::line::Line;
use crate::qos::record::{CoreRecord, TenantRecord};
use crate::request::Ticket;
use crate::stats::TenantStats;
use base::Nanos;
use qos::token_scheduler::Refused;
use qos::{PricedOperation, TenantId, TenantKey, TokenScheduler, Tokens};
use std::sync::Arc;

/// A command that waits for its tokens, and its cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priced {
    pub(crate) operation: PricedOperation,
    pub(crate) units: u32,
    pub(crate) ticket: Ticket,
}

/// The tenant was removed: its connections are about to get another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// A completed command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) operation: PricedOperation,
    pub(crate) success: bool,
    pub(crate) bytes: u64,
    /// Time from its dispatch to its answer.
    pub(crate) took: Nanos,
    /// Time in the device, included in `took`; `None` if it never reached the device.
    pub(crate) device: Option<Nanos>,
}

/// Lateness of reads under a latency SLO.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// Thousandths of reads that were late.
    pub(super) late: u64,
    /// Thousandths of reads that may be late.
    pub(super) allowed: u64,
}

impl Lateness {
    /// Counts a completed read, of which `allowed` in a thousand may be late.
    #[inline]
    pub(super) fn count(&mut self, late: bool, allowed: u32) {
        self.late += 1000 * u64::from(late);
        self.allowed += u64::from(allowed);
    }

    pub(super) const fn is_too_much(self) -> bool {
        self.late > self.allowed
    }
}

/// Billionths of a token in a thousandth.
const MILLI: i64 = 1_000_000;

/// A command in the scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) tenant: u32,
}

/// A tenant with a connection on this core.
#[derive(Debug)]
pub(super) struct CoreTenant {
    pub(super) key: TenantKey,
    pub(super) id: TenantId,
    /// Commands in the scheduler.
    pub(super) queued: u32,
    /// Commands without a place in the scheduler, in order.
    pub(super) overflow: Line<Priced>,
    pub(super) stats: TenantStats,
    latency: TenantLatency,
    /// Remainders of earned, spent, given and taken tokens below one thousandth.
    rest: [i64; 4],
    record: Arc<TenantRecord>,
    published: Arc<CoreRecord>,
    /// Number of further times that the counters must be published.
    unpublished: u8,
}

impl CoreTenant {
    /// Creates a tenant without connections, which continues its earlier counters on this core, if
    /// any.
    pub(super) fn new(
        id: TenantId,
        key: TenantKey,
        record: &Arc<TenantRecord>,
        core: usize,
    ) -> Self {
        let published = record.core(core);
        Self {
            key,
            id,
            queued: 0,
            overflow: Line::default(),
            stats: published.stats.load(),
            latency: published.latency.load(),
            rest: [0; 4],
            record: Arc::clone(record),
            published,
            unpublished: 0,
        }
    }

    /// Returns the number of waiting commands.
    pub(super) fn waiting(&self) -> usize {
        self.queued as usize + self.overflow.len()
    }

    /// Passes a command to the scheduler if the tenant has not used up its share of places.
    #[inline]
    pub(super) fn push(
        &mut self,
        scheduler: &mut TokenScheduler<Waiting>,
        tenant: u32,
        share: u32,
        priced: Priced,
    ) -> Result<(), Refused<Waiting>> {
        let Priced {
            operation,
            units,
            ticket,
        } = priced;
        let waiting = Waiting { ticket, tenant };
        if self.queued >= share {
            return Err(Refused::Full(waiting));
        }
        scheduler.enqueue(self.key, operation, units, waiting)?;
        self.queued += 1;
        Ok(())
    }

    /// Notes that the counters change. Returns true if they had not changed since they were
    /// published.
    #[inline]
    pub(super) fn changes(&mut self) -> bool {
        // Saved tokens are given back some rounds after the last command.
        std::mem::replace(&mut self.unpublished, 2) == 0
    }

    /// Counts a completed command.
    #[inline]
    pub(super) fn count(&mut self, done: &Done, lateness: &mut Lateness) {
        let (stats, latency) = (&mut self.stats, &mut self.latency);
        let read = done.operation == PricedOperation::Read;
        match done.operation {
            _ if !done.success => stats.errors += 1,
            PricedOperation::Read => {
                stats.reads += 1;
                stats.read_bytes += done.bytes;
            }
            PricedOperation::Write => {
                stats.writes += 1;
                stats.written_bytes += done.bytes;
            }
            _ => stats.others += 1,
        }
        if read && let Some(promised) = self.record.promised() {
            stats.slo_reads += 1;
            let late = done.took > promised;
            stats.late_reads += u64::from(late);
            lateness.count(late, self.record.late_permille());
        }
        let (whole, device) = if read {
            (&mut latency.reads, &mut latency.device_reads)
        } else {
            (&mut latency.others, &mut latency.device_others)
        };
        whole.count(done.took);
        if let Some(took) = done.device {
            device.count(took);
        }
    }

    /// Publishes the counters. Returns true if they will change again without further events.
    pub(super) fn publish(&mut self, scheduler: &mut TokenScheduler<Waiting>) -> bool {
        self.stats.waiting = self.waiting() as u64;
        if let Some(tally) = scheduler.take_tally(self.key) {
            let stats = &mut self.stats;
            let moved = [tally.earned, tally.spent, tally.given, tally.taken];
            let sums = [
                &mut stats.earned_milli,
                &mut stats.spent_milli,
                &mut stats.given_milli,
                &mut stats.taken_milli,
            ];
            for ((sum, rest), Tokens(moved)) in sums.into_iter().zip(&mut self.rest).zip(moved) {
                let amount = rest.saturating_add(moved);
                *sum = sum.wrapping_add_signed(amount / MILLI);
                *rest = amount % MILLI;
            }
            stats.limited_rounds += tally.limited_rounds;
        }
        self.published.stats.publish(&self.stats);
        self.published.latency.publish(&self.latency);
        if self.stats.waiting == 0 {
            self.unpublished = self.unpublished.saturating_sub(1);
        }
        self.unpublished > 0
    }
}
