//! The token pool of a device, shared by all threads: the rate of tokens, and the global bucket.
//! `[ReFlex §3.2.2]`
//!
//! Tokens are generated once, by whichever thread looks first, and fall into the bucket. From there
//! latency-critical tenants draw what they reserved, and put back what they do not need; what
//! remains belongs to *backlogged* best-effort tenants: those with requests waiting. A round of all
//! threads ends with a *close*: the bucket's content becomes a quota for each unit of their weight.
//! The quota only ever counts up; a backlogged tenant claims its weight's worth of the difference
//! since it claimed last, whenever its thread comes round. So no tenant gains by coming more often,
//! threads write nothing for each other, and no decision waits for a thread that sleeps or was
//! preempted.
//!
//! All of it is atomics, none of it a lock. A look at two of them is not one look, so a quota may
//! be computed from a weight that changes meanwhile; but tokens move only by being taken out of
//! one place and put into another, so whatever the interleaving, none is made or lost, and a
//! claim is paid from what is there. Must never: hand out what was not generated.
//!
//! Rejected: rates for each best-effort tenant, as in the paper (idle ones would have to be visited
//! to collect what they do not need); a bucket that backlogged tenants drain as they come (one that
//! polls more often gets more); one thread that distributes (a preempted one stops all).

use crate::cost::{CostModel, DeviceLoad, Price, PricedOperation, Prices};
use crate::limits::{
    ADVANCE, DONATION_PERMILLE, LATENCY_RESERVE_PERMILLE, NEG_LIMIT_TOKENS, POS_LIMIT_ROUNDS,
    RATE_MAX, ROUND_MAX, ROUND_MIN, ROUND_PERMILLE, SPAN_ROUNDS, THREADS_MAX,
};
use crate::share::ReadShare;
use crate::tokens::{TokenRate, Tokens};
use base::{Nanos, Time};
#[cfg(loom)]
use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// The rules of the scheduler: the paper's, or those with additions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Algorithm 1 with additions: a latency-critical tenant at `neg_limit` is lent what no other
    /// tenant wants, `pos_limit_rounds` are rounds of the longest length, and the bucket keeps a
    /// round's tokens and its debt when a round of all threads ends.
    Extended,
    /// Algorithm 1 without them: a tenant at `neg_limit` waits, POS_LIMIT is what the tenant received
    /// in its last three rounds, and the bucket is empty after each round of all threads.
    /// `[ReFlex §3.2.2]`
    Paper,
}

base::with_defaults! {
    /// The scheduler's constants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TokenPoolRules {
        /// A latency-critical tenant with this much or less (a debt) is stopped.
        pub neg_limit: Tokens = Tokens::whole(-NEG_LIMIT_TOKENS),
        /// Rounds, of the longest allowed length, for which it may save tokens. The length of a round
        /// in fact depends on what else the core does, and that is no business of a tenant's.
        /// ([`Algorithm::Paper`] counts its last three rounds as they were instead.)
        pub pos_limit_rounds: u64 = POS_LIMIT_ROUNDS,
        /// Part of its tokens beyond that which it gives away, in thousandths.
        pub donation_permille: i64 = DONATION_PERMILLE,
        /// Stopped at `neg_limit`, it goes on with tokens of best effort, until it owes what it earns
        /// in so long: at most 10 s. Zero for the paper's rule, which stops it.
        pub advance: Nanos = ADVANCE,
        /// Part of a promised latency that admission keeps back, in thousandths: below 1000.
        pub latency_reserve_permille: u64 = LATENCY_RESERVE_PERMILLE,
        /// The rules.
        pub algorithm: Algorithm = Algorithm::Extended,
    }
}

impl TokenPoolRules {
    /// ReFlex's scheduler: Algorithm 1 with the paper's constants and nothing added. For
    /// comparisons; the best-effort share is still divided by weight at the end of each round of all
    /// threads, where the paper's tenants drain the bucket as they come. `[ReFlex §3.2.2]`
    #[must_use]
    pub fn reflex_paper() -> Self {
        Self {
            advance: Nanos::ZERO,
            latency_reserve_permille: 0,
            algorithm: Algorithm::Paper,
            ..Self::default()
        }
    }
}

/// Returns the longest duration of a round, for a strictest latency: a twentieth of it, within
/// limits.
#[must_use]
pub fn round_for(strictest: Option<Nanos>) -> Nanos {
    let round = strictest.map_or(ROUND_MAX, |slo| Nanos(slo.0 / 1000 * ROUND_PERMILLE));
    round.clamp(ROUND_MIN, ROUND_MAX)
}

/// The tokens of one device.
#[derive(Debug)]
pub struct TokenPool {
    rules: TokenPoolRules,
    settings: Settings,
    flows: Flows,
    share: ReadShare,
}

/// State that threads read, and that hardly ever changes.
#[derive(Debug)]
#[repr(align(128))]
struct Settings {
    rate: AtomicU64,
    round: AtomicU64,
    /// Counts changes of the prices.
    edition: AtomicU32,
    prices: [AtomicU32; 4 * PricedOperation::COUNT],
    /// A bit for each thread that schedules.
    threads: AtomicU64,
}

/// State that threads write.
#[derive(Debug)]
#[repr(align(128))]
struct Flows {
    /// Time up to which tokens were generated, in nanoseconds.
    generated_to: AtomicU64,
    /// The global bucket; negative for what latency-critical tenants drew ahead.
    bucket: AtomicI64,
    /// Tokens that the quota promises and no tenant has claimed.
    promised: AtomicI64,
    /// Tokens for each unit of weight since ever, in billionths (wraps).
    quota: AtomicU64,
    /// The weight of those that are backlogged.
    backlogged: AtomicU64,
    /// Threads with requests waiting.
    present: AtomicU64,
    /// Threads of `present` that had a round since the last close.
    visited: AtomicU64,
    /// Time of the last close.
    closed_at: AtomicU64,
    /// Spent on requests since ever, in billionths (wraps).
    spent: AtomicU64,
}

/// The tokens at a close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Tokens that no tenant wanted in time.
    pub expired: Tokens,
    /// Drawn beyond generation, and given up for: promises were made beyond the rate, or a thread
    /// came more than [`SPAN_ROUNDS`] rounds late.
    pub forgiven: Tokens,
}

impl TokenPool {
    /// A device's tokens: none yet.
    #[must_use]
    pub fn new(rules: TokenPoolRules, rate: TokenRate, round: Nanos, model: &CostModel) -> Self {
        let pool = Self {
            rules,
            settings: Settings {
                rate: AtomicU64::new(0),
                round: AtomicU64::new(0),
                edition: AtomicU32::new(0),
                prices: std::array::from_fn(|_| AtomicU32::new(0)),
                threads: AtomicU64::new(0),
            },
            flows: Flows {
                generated_to: AtomicU64::new(0),
                bucket: AtomicI64::new(0),
                promised: AtomicI64::new(0),
                quota: AtomicU64::new(0),
                backlogged: AtomicU64::new(0),
                present: AtomicU64::new(0),
                visited: AtomicU64::new(0),
                closed_at: AtomicU64::new(0),
                spent: AtomicU64::new(0),
            },
            share: ReadShare::new(),
        };
        pool.set_rate(rate, round);
        pool.set_prices(model);
        pool
    }

    /// The scheduler's constants.
    #[must_use]
    pub const fn rules(&self) -> &TokenPoolRules {
        &self.rules
    }

    /// Returns the read share of the device's load.
    #[must_use]
    pub const fn share(&self) -> &ReadShare {
        &self.share
    }

    /// The rate at which tokens are generated.
    #[inline]
    #[must_use]
    pub fn rate(&self) -> TokenRate {
        TokenRate(self.settings.rate.load(Ordering::Relaxed))
    }

    /// The longest time between two rounds.
    #[inline]
    #[must_use]
    pub fn round(&self) -> Nanos {
        Nanos(self.settings.round.load(Ordering::Relaxed))
    }

    /// The longest time for which tokens are generated at once.
    #[inline]
    fn longest(&self) -> Nanos {
        Nanos(self.round().0 * SPAN_ROUNDS)
    }

    /// Sets another rate and round, from the next round on.
    pub fn set_rate(&self, rate: TokenRate, round: Nanos) {
        let round = round.clamp(ROUND_MIN, ROUND_MAX);
        self.settings
            .rate
            .store(rate.0.min(RATE_MAX), Ordering::Relaxed);
        self.settings.round.store(round.0, Ordering::Relaxed);
    }

    /// Other prices, from the next round on.
    pub fn set_prices(&self, model: &CostModel) {
        let all = [&model.mixed, &model.read_only].map(|prices| [prices.unit, prices.least]);
        for (cell, price) in self
            .settings
            .prices
            .iter()
            .zip(all.iter().flatten().flatten())
        {
            cell.store(price.as_milli(), Ordering::Relaxed);
        }
        self.settings.edition.fetch_add(1, Ordering::Release);
    }

    /// Counts changes of the prices.
    #[inline]
    pub(crate) fn edition(&self) -> u32 {
        self.settings.edition.load(Ordering::Acquire)
    }

    /// The prices now.
    #[must_use]
    pub fn model(&self) -> CostModel {
        let mut cells = self.settings.prices.iter();
        let mut list = || {
            std::array::from_fn(|_| {
                let milli = cells.next().map_or(0, |cell| cell.load(Ordering::Relaxed));
                Price::milli(milli).unwrap_or(Price::READ)
            })
        };
        let mut prices = || Prices {
            unit: list(),
            least: list(),
        };
        CostModel {
            mixed: prices(),
            read_only: prices(),
        }
    }

    /// The kind of load, which decides on the prices.
    #[inline]
    pub(crate) fn load(&self, now: Time) -> DeviceLoad {
        self.share.load(now)
    }

    /// A number for a thread that schedules; `None` when all are taken.
    pub(crate) fn join(&self) -> Option<u32> {
        let order = Ordering::AcqRel;
        let mut threads = self.settings.threads.load(Ordering::Relaxed);
        loop {
            let thread = threads.trailing_ones();
            if thread >= THREADS_MAX {
                return None;
            }
            let more = threads | 1 << thread;
            match self
                .settings
                .threads
                .compare_exchange(threads, more, order, Ordering::Relaxed)
            {
                Ok(_) => return Some(thread),
                Err(other) => threads = other,
            }
        }
    }

    /// Gives the number back.
    pub(crate) fn leave(&self, thread: u32) {
        self.deactivate(thread);
        self.settings
            .threads
            .fetch_and(!(1 << thread), Ordering::AcqRel);
    }

    /// The thread has requests waiting from now on: closes wait for it (for a while). It has no
    /// claims yet, so it counts as having had a round.
    pub(crate) fn activate(&self, thread: u32) {
        self.flows.visited.fetch_or(1 << thread, Ordering::AcqRel);
        self.flows.present.fetch_or(1 << thread, Ordering::AcqRel);
    }

    /// The thread has none any more.
    pub(crate) fn deactivate(&self, thread: u32) {
        self.flows
            .present
            .fetch_and(!(1 << thread), Ordering::AcqRel);
    }

    /// The quota now.
    #[inline]
    pub(crate) fn quota(&self) -> u64 {
        self.flows.quota.load(Ordering::Acquire)
    }

    /// The thread had its round, in which it claimed up to this `quota`. That does not count where
    /// a close within the round has shared out more since.
    #[inline]
    pub(crate) fn visit(&self, thread: u32, quota: u64) {
        if self.flows.visited.load(Ordering::Relaxed) & 1 << thread == 0 && self.quota() == quota {
            self.flows.visited.fetch_or(1 << thread, Ordering::AcqRel);
        }
    }

    /// Generates what is due, for at most [`SPAN_ROUNDS`] rounds: what no thread asked for is gone.
    #[inline]
    pub(crate) fn generate(&self, now: Time) -> Tokens {
        let flows = &self.flows;
        let mut from = flows.generated_to.load(Ordering::Relaxed);
        loop {
            if now.0 <= from {
                return Tokens::ZERO;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match flows
                .generated_to
                .compare_exchange_weak(from, now.0, success, failure)
            {
                Ok(_) => break,
                Err(other) => from = other,
            }
        }
        let amount = self.rate().over(Nanos(now.0 - from).min(self.longest()));
        self.give(amount);
        amount
    }

    /// Puts tokens into the bucket; a negative amount is drawn from it.
    #[inline]
    pub(crate) fn give(&self, amount: Tokens) {
        if amount != Tokens::ZERO {
            self.flows.bucket.fetch_add(amount.0, Ordering::AcqRel);
        }
    }

    /// Lends up to `most` from the bucket, where no tenant is backlogged.
    pub(crate) fn borrow(&self, most: Tokens) -> Tokens {
        if self.flows.backlogged.load(Ordering::Relaxed) > 0 {
            return Tokens::ZERO;
        }
        take(&self.flows.bucket, most)
    }

    /// Advances up to `most` from the bucket, before backlogged tenants.
    pub(crate) fn advance(&self, most: Tokens) -> Tokens {
        take(&self.flows.bucket, most)
    }

    /// Adds a backlogged tenant; returns the quota from which its claims count.
    pub(crate) fn enter_backlog(&self, weight: u64) -> u64 {
        self.flows.backlogged.fetch_add(weight, Ordering::AcqRel);
        self.quota()
    }

    /// Removes a tenant that was backlogged.
    pub(crate) fn leave_backlog(&self, weight: u64) {
        self.flows.backlogged.fetch_sub(weight, Ordering::AcqRel);
    }

    /// Claims a weight's worth of the quota since `seen`, which moves on. Paid from what is
    /// promised.
    #[inline]
    pub(crate) fn claim(&self, weight: u64, seen: &mut u64) -> Tokens {
        let quota = self.quota();
        let more = u128::from(quota.wrapping_sub(*seen));
        *seen = quota;
        if more == 0 {
            return Tokens::ZERO;
        }
        let due = i64::try_from(more * u128::from(weight)).unwrap_or(i64::MAX);
        take(&self.flows.promised, Tokens(due))
    }

    /// Closes a round of all threads if it is over, or has lasted long enough.
    /// `[ReFlex Algorithm 1, lines 22-23]`
    #[inline]
    pub(crate) fn close_if_due(&self, now: Time) -> Closed {
        let flows = &self.flows;
        let visited = flows.visited.load(Ordering::Acquire);
        let present = flows.present.load(Ordering::Acquire);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if visited & present == present {
            // Of threads that find this together, one closes.
            if flows
                .visited
                .compare_exchange(visited, 0, success, failure)
                .is_ok()
            {
                flows.closed_at.store(now.0, Ordering::Relaxed);
                // All have claimed: what is promised still cannot be claimed any more.
                let stale = take(&flows.promised, Tokens(i64::MAX));
                return self.close(stale);
            }
            return Closed::default();
        }
        let closed_at = flows.closed_at.load(Ordering::Relaxed);
        if now.since(Time(closed_at)) >= self.round()
            && flows
                .closed_at
                .compare_exchange(closed_at, now.0, success, failure)
                .is_ok()
        {
            flows.visited.store(0, Ordering::Release);
            return self.close(Tokens::ZERO);
        }
        Closed::default()
    }

    /// Turns the bucket into a quota for backlogged tenants. Without any it is emptied but for what
    /// a round generates, so that the next request need not wait and none bursts after a lull.
    ///
    /// A debt is what latency-critical tenants of threads that come late draw of tokens that others
    /// were given meanwhile, so it stays, and the others wait: as much of it as can be owed while
    /// threads come at least every [`SPAN_ROUNDS`] rounds, and no more is promised than there is.
    ///
    /// By [`Algorithm::Paper`] nothing outlasts a close: no debt, and nothing unclaimed.
    fn close(&self, stale: Tokens) -> Closed {
        let flows = &self.flows;
        let amount = Tokens(flows.bucket.swap(0, Ordering::AcqRel)) + stale;
        let resets = self.rules.algorithm == Algorithm::Paper;
        let (burst, debt_max) = if resets {
            (Tokens::ZERO, Tokens::ZERO)
        } else {
            let rate = self.rate();
            (rate.over(self.round()), rate.over(self.longest()))
        };
        let mut closed = Closed::default();
        if amount.0 <= 0 {
            let debt = amount.max(-debt_max);
            closed.forgiven = debt - amount;
            self.give(debt);
            return closed;
        }
        let backlogged =
            i64::try_from(flows.backlogged.load(Ordering::Acquire)).unwrap_or(i64::MAX);
        if backlogged == 0 {
            let kept = amount.min(burst);
            closed.expired = amount - kept;
            self.give(kept);
            return closed;
        }
        let quota = amount.0 / backlogged;
        // First what pays for the promise, then the promise.
        flows
            .promised
            .fetch_add(quota * backlogged, Ordering::AcqRel);
        flows
            .quota
            .fetch_add(quota.unsigned_abs(), Ordering::AcqRel);
        self.give(Tokens(amount.0 % backlogged));
        closed
    }

    /// Requests were released.
    #[inline]
    pub(crate) fn spend(&self, amount: Tokens) {
        self.flows
            .spent
            .fetch_add(amount.0.unsigned_abs(), Ordering::Relaxed);
    }

    /// Returns what all threads together spent on requests since `seen` was last given here, which
    /// moves on: the load of the device. Right as long as that is less than nine thousand million
    /// tokens.
    pub fn spent_since(&self, seen: &mut u64) -> Tokens {
        let spent = self.flows.spent.load(Ordering::Relaxed);
        let more = spent.wrapping_sub(*seen);
        *seen = spent;
        Tokens(i64::try_from(more).unwrap_or(i64::MAX))
    }

    /// Returns the tokens in the bucket and those that are promised: everything that no tenant has.
    #[must_use]
    pub fn unclaimed(&self) -> Tokens {
        let flows = &self.flows;
        let bucket = flows.bucket.load(Ordering::Acquire);
        Tokens(bucket) + Tokens(flows.promised.load(Ordering::Acquire))
    }
}

/// Takes up to `most` out of a cell, which a debt leaves as it is.
#[inline]
fn take(cell: &AtomicI64, most: Tokens) -> Tokens {
    let mut there = cell.load(Ordering::Acquire);
    loop {
        let taken = there.min(most.0);
        if taken <= 0 {
            return Tokens::ZERO;
        }
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match cell.compare_exchange(there, there - taken, success, failure) {
            Ok(_) => return Tokens(taken),
            Err(other) => there = other,
        }
    }
}
