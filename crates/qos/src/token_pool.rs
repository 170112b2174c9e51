//! The token pool, shared by all threads of one device: the rate of token generation, and the
//! global bucket. `[ReFlex §3.2.2]`
//!
//! All state is atomic, without locks. Two loads are not one snapshot, so a quota may be computed
//! from a changing weight; but tokens only move from one place to another, so none is created or
//! lost in any interleaving, and a claim is paid from existing tokens. Invariant: no tokens beyond
//! those generated.

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

/// The scheduler's algorithm: the paper's, or the paper's with additions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Algorithm 1 with additions: a latency-critical tenant at `neg_limit` borrows tokens that no
    /// other tenant wants, `pos_limit_rounds` counts rounds of the maximum length, and at the end
    /// of a round of all threads the bucket keeps one round's tokens and its debt.
    Extended,
    /// Algorithm 1 without additions: a tenant at `neg_limit` waits, POS_LIMIT is the tokens that
    /// the tenant received in its last three rounds, and the bucket is emptied after each round of
    /// all threads. `[ReFlex §3.2.2]`
    Paper,
}

base::with_defaults! {
    /// The scheduler's constants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TokenPoolRules {
        /// A latency-critical tenant with this balance (a debt) or less is stopped.
        pub neg_limit: Tokens = Tokens::whole(-NEG_LIMIT_TOKENS),
        /// Number of maximum-length rounds for which it may save tokens. The actual length depends
        /// on the core's other work, which must not affect a tenant. ([`Algorithm::Paper`] counts
        /// its last three actual rounds instead.)
        pub pos_limit_rounds: u64 = POS_LIMIT_ROUNDS,
        /// Part of its tokens above that which it donates, in thousandths.
        pub donation_permille: i64 = DONATION_PERMILLE,
        /// Maximum advance from best effort to a tenant stopped at `neg_limit`, as the time in
        /// which the tenant earns it: at most 10 s. Zero for the paper's rule, which stops the
        /// tenant.
        pub advance: Nanos = ADVANCE,
        /// Part of each SLO's latency that admission keeps in reserve, in thousandths: below 1000.
        pub latency_reserve_permille: u64 = LATENCY_RESERVE_PERMILLE,
        /// The algorithm.
        pub algorithm: Algorithm = Algorithm::Extended,
    }
}

impl TokenPoolRules {
    /// ReFlex's scheduler: Algorithm 1 with the paper's constants and without additions, for
    /// comparison. One difference remains: best-effort tokens are divided by weight at the end of
    /// each round of all threads, while the paper's tenants drain the bucket on arrival. `[ReFlex
    /// §3.2.2]`
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

/// Returns the maximum duration of a round for the strictest latency: a twentieth of it, within
/// limits.
#[must_use]
pub fn round_for(strictest: Option<Nanos>) -> Nanos {
    let round = strictest.map_or(ROUND_MAX, |slo| Nanos(slo.0 / 1000 * ROUND_PERMILLE));
    round.clamp(ROUND_MIN, ROUND_MAX)
}

/// The tokens of one device.
///
/// The first thread to look generates tokens, once, into the bucket. Latency-critical tenants draw
/// their reservations from it and return unused tokens; the rest belongs to *backlogged*
/// best-effort tenants: those with queued requests. A round of all threads ends with a *close*: the
/// bucket's content becomes a quota per unit of their weight. The quota only counts up; a
/// backlogged tenant claims its weight times the difference since its last claim. So no tenant
/// gains by claiming more often, threads write nothing for each other, and no decision waits for a
/// thread that sleeps or was preempted.
///
/// Rejected: a rate per best-effort tenant, as in the paper (idle tenants would have to be visited
/// to collect their unused tokens); a bucket that backlogged tenants drain on arrival (frequent
/// pollers get more); one distributing thread (its preemption stops all).
#[derive(Debug)]
pub struct TokenPool {
    rules: TokenPoolRules,
    settings: Settings,
    flows: Flows,
    share: ReadShare,
}

/// Rarely changed state that threads read.
#[derive(Debug)]
#[repr(align(128))]
struct Settings {
    rate: AtomicU64,
    round: AtomicU64,
    /// Number of price changes.
    edition: AtomicU32,
    prices: [AtomicU32; 4 * PricedOperation::COUNT],
    /// One bit per scheduling thread.
    threads: AtomicU64,
}

/// State that threads write.
#[derive(Debug)]
#[repr(align(128))]
struct Flows {
    /// Time up to which tokens were generated, in nanoseconds.
    generated_to: AtomicU64,
    /// The global bucket; negative if latency-critical tenants drew ahead of generation.
    bucket: AtomicI64,
    /// Tokens in the quota that no tenant has claimed.
    promised: AtomicI64,
    /// Total tokens per unit of weight, in billionths (wraps).
    quota: AtomicU64,
    /// Total weight of backlogged tenants.
    backlogged: AtomicU64,
    /// Threads with queued requests, one bit each.
    present: AtomicU64,
    /// Threads of `present` that ran a round since the last close.
    visited: AtomicU64,
    /// Time of the last close.
    closed_at: AtomicU64,
    /// Total tokens spent on requests, in billionths (wraps).
    spent: AtomicU64,
}

/// Tokens that end at a close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Tokens that no tenant wanted in time.
    pub expired: Tokens,
    /// Debt that is written off: reservations exceed the rate, or a thread came more than
    /// [`SPAN_ROUNDS`] rounds late.
    pub forgiven: Tokens,
}

impl TokenPool {
    /// Creates a device's pool without tokens.
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

    /// Returns the rate of token generation.
    #[inline]
    #[must_use]
    pub fn rate(&self) -> TokenRate {
        TokenRate(self.settings.rate.load(Ordering::Relaxed))
    }

    /// Returns the maximum time between two rounds.
    #[inline]
    #[must_use]
    pub fn round(&self) -> Nanos {
        Nanos(self.settings.round.load(Ordering::Relaxed))
    }

    /// Returns the maximum time for which tokens are generated at once.
    #[inline]
    fn longest(&self) -> Nanos {
        Nanos(self.round().0 * SPAN_ROUNDS)
    }

    /// Sets the rate and the round, from the next round on.
    pub fn set_rate(&self, rate: TokenRate, round: Nanos) {
        let round = round.clamp(ROUND_MIN, ROUND_MAX);
        self.settings
            .rate
            .store(rate.0.min(RATE_MAX), Ordering::Relaxed);
        self.settings.round.store(round.0, Ordering::Relaxed);
    }

    /// Sets the prices, from the next round on.
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

    /// Returns the number of price changes.
    #[inline]
    pub(crate) fn edition(&self) -> u32 {
        self.settings.edition.load(Ordering::Acquire)
    }

    /// Returns the current prices.
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

    /// Returns the kind of load, which determines the prices.
    #[inline]
    pub(crate) fn load(&self, now: Time) -> DeviceLoad {
        self.share.load(now)
    }

    /// Assigns a number to a scheduling thread; `None` if all are in use.
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

    /// Releases the number.
    pub(crate) fn leave(&self, thread: u32) {
        self.deactivate(thread);
        self.settings
            .threads
            .fetch_and(!(1 << thread), Ordering::AcqRel);
    }

    /// Notes that the thread has queued requests: closes wait for it, for a limited time. It has no
    /// claims yet, so it counts as having run a round.
    pub(crate) fn activate(&self, thread: u32) {
        self.flows.visited.fetch_or(1 << thread, Ordering::AcqRel);
        self.flows.present.fetch_or(1 << thread, Ordering::AcqRel);
    }

    /// Notes that the thread has no queued requests any more.
    pub(crate) fn deactivate(&self, thread: u32) {
        self.flows
            .present
            .fetch_and(!(1 << thread), Ordering::AcqRel);
    }

    /// Returns the current quota.
    #[inline]
    pub(crate) fn quota(&self) -> u64 {
        self.flows.quota.load(Ordering::Acquire)
    }

    /// Notes that the thread ran a round, in which it claimed up to `quota`. Ignored if a close
    /// during the round has raised the quota since.
    #[inline]
    pub(crate) fn visit(&self, thread: u32, quota: u64) {
        if self.flows.visited.load(Ordering::Relaxed) & 1 << thread == 0 && self.quota() == quota {
            self.flows.visited.fetch_or(1 << thread, Ordering::AcqRel);
        }
    }

    /// Generates the tokens due, for at most [`SPAN_ROUNDS`] rounds: older ones expire.
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

    /// Adds tokens to the bucket; a negative amount is drawn from it.
    #[inline]
    pub(crate) fn give(&self, amount: Tokens) {
        if amount != Tokens::ZERO {
            self.flows.bucket.fetch_add(amount.0, Ordering::AcqRel);
        }
    }

    /// Lends up to `most` from the bucket if no tenant is backlogged.
    pub(crate) fn borrow(&self, most: Tokens) -> Tokens {
        if self.flows.backlogged.load(Ordering::Relaxed) > 0 {
            return Tokens::ZERO;
        }
        take(&self.flows.bucket, most)
    }

    /// Advances up to `most` from the bucket, with precedence over backlogged tenants.
    pub(crate) fn advance(&self, most: Tokens) -> Tokens {
        take(&self.flows.bucket, most)
    }

    /// Adds a backlogged tenant; returns the quota from which its claims count.
    pub(crate) fn enter_backlog(&self, weight: u64) -> u64 {
        self.flows.backlogged.fetch_add(weight, Ordering::AcqRel);
        self.quota()
    }

    /// Removes a backlogged tenant.
    pub(crate) fn leave_backlog(&self, weight: u64) {
        self.flows.backlogged.fetch_sub(weight, Ordering::AcqRel);
    }

    /// Claims `weight` times the quota since `seen`, which advances. Paid from the unclaimed quota.
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

    /// Closes a round of all threads if every thread had its round, or it has lasted long enough.
    /// `[ReFlex Algorithm 1, lines 22-23]`
    #[inline]
    pub(crate) fn close_if_due(&self, now: Time) -> Closed {
        let flows = &self.flows;
        let visited = flows.visited.load(Ordering::Acquire);
        let present = flows.present.load(Ordering::Acquire);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if visited & present == present {
            // If several threads find this concurrently, one closes.
            if flows
                .visited
                .compare_exchange(visited, 0, success, failure)
                .is_ok()
            {
                flows.closed_at.store(now.0, Ordering::Relaxed);
                // All have claimed: the remaining quota cannot be claimed any more.
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

    /// Turns the bucket into a quota for backlogged tenants. Without backlogged tenants it is
    /// reduced to one round's tokens, so that the next request need not wait and no tenant bursts
    /// after a lull.
    ///
    /// A debt arises when late threads draw reserved tokens that were meanwhile given to other
    /// tenants. So the debt stays and best effort waits: up to the amount that can be owed while
    /// threads come at least every [`SPAN_ROUNDS`] rounds and reservations do not exceed the rate.
    ///
    /// With [`Algorithm::Paper`] nothing outlasts a close: no debt, and no unclaimed tokens.
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
        // First the tokens that back the quota, then the quota.
        flows
            .promised
            .fetch_add(quota * backlogged, Ordering::AcqRel);
        flows
            .quota
            .fetch_add(quota.unsigned_abs(), Ordering::AcqRel);
        self.give(Tokens(amount.0 % backlogged));
        closed
    }

    /// Counts tokens spent on released requests.
    #[inline]
    pub(crate) fn spend(&self, amount: Tokens) {
        self.flows
            .spent
            .fetch_add(amount.0.unsigned_abs(), Ordering::Relaxed);
    }

    /// Returns the tokens that all threads spent on requests since `seen` was last passed here, and
    /// advances it: the load of the device. Valid for less than nine thousand million tokens.
    pub fn spent_since(&self, seen: &mut u64) -> Tokens {
        let spent = self.flows.spent.load(Ordering::Relaxed);
        let more = spent.wrapping_sub(*seen);
        *seen = spent;
        Tokens(i64::try_from(more).unwrap_or(i64::MAX))
    }

    /// Returns the tokens in the bucket and in the unclaimed quota: all that no tenant holds.
    #[must_use]
    pub fn unclaimed(&self) -> Tokens {
        let flows = &self.flows;
        let bucket = flows.bucket.load(Ordering::Acquire);
        Tokens(bucket) + Tokens(flows.promised.load(Ordering::Acquire))
    }
}

/// Takes up to `most` out of a cell; a debt stays as it is.
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
