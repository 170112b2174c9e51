//! A tenant on one thread.

use super::TenantKey;
use super::queue::{Places, Queue};
use crate::account::{Account, Contract};
use crate::limits::{POS_LIMIT_ROUNDS, SILENCE};
use crate::token_pool::{Algorithm, TokenPool};
use crate::tokens::{TokenRate, Tokens};
use base::{Nanos, Time};
use std::sync::Arc;

/// Number of rounds whose received tokens are remembered.
const RECEIVED_ROUNDS: usize = 3;
const _: () = assert!(RECEIVED_ROUNDS as u64 == POS_LIMIT_ROUNDS);

/// The tally of a tenant on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Released requests.
    pub released: u64,
    /// Cost of these requests.
    pub spent: Tokens,
    /// Own tokens: generated for it, or its share of the quota.
    pub earned: Tokens,
    /// Unneeded tokens that it returned.
    pub given: Tokens,
    /// Tokens borrowed by a latency-critical tenant that no other tenant wanted, or advanced by
    /// best effort.
    pub taken: Tokens,
    /// Rounds in which a latency-critical tenant was stopped at NEG_LIMIT with queued requests and
    /// no advance left.
    pub limited_rounds: u64,
    /// Queued requests.
    pub waiting: u32,
}

/// The class of a tenant, as a thread treats it until it reads the contract again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    LatencyCritical,
    BestEffort,
}

impl Kind {
    /// Returns the class of a contract; `None` for a removed tenant.
    #[inline]
    pub(super) const fn of(contract: Contract) -> Option<Self> {
        match contract {
            Contract::LatencyCritical(_) => Some(Self::LatencyCritical),
            Contract::BestEffort(_) => Some(Self::BestEffort),
            Contract::Closed => None,
        }
    }
}

/// A tenant on one thread.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) account: Arc<Account>,
    pub(super) generation: u32,
    /// Number of connections; without one, its key is invalid.
    pub(super) attached: u32,
    pub(super) queue: Queue,
    /// The list through which it is visited.
    pub(super) listed: Option<Kind>,
    /// Position on that list.
    pub(super) position: u32,
    /// Best effort: claimed tokens not spent yet.
    pub(super) claimed: Tokens,
    /// True if paying at once was tried since the last round.
    pub(super) asked: bool,
    /// Best effort: tokens spent since the start of the last round.
    pub(super) used: Tokens,
    /// Best effort: its weight among backlogged tenants; 0 if it is not backlogged.
    pub(super) weight: u64,
    /// Best effort: the quota up to which it has claimed.
    seen: u64,
    /// Latency-critical: true if the account counts this thread.
    entered: bool,
    /// Latency-critical: this thread's part of the rate, less the tokens spent here.
    pub(super) part: Tokens,
    /// Latency-critical: time at which it last received its part.
    part_at: Time,
    /// Latency-critical: tokens received in its last rounds, the newest first.
    received: [Tokens; RECEIVED_ROUNDS],
    /// Latency-critical: the last round in which it had a request.
    asked_at: Time,
    pub(super) tally: Tally,
}

impl Entry {
    pub(super) fn new(account: Arc<Account>, generation: u32) -> Self {
        Self {
            account,
            generation,
            attached: 1,
            queue: Queue::EMPTY,
            listed: None,
            position: 0,
            claimed: Tokens::ZERO,
            asked: false,
            used: Tokens::ZERO,
            weight: 0,
            seen: 0,
            entered: false,
            part: Tokens::ZERO,
            part_at: Time::ZERO,
            received: [Tokens::ZERO; RECEIVED_ROUNDS],
            asked_at: Time::ZERO,
            tally: Tally::default(),
        }
    }

    #[inline]
    pub(super) const fn is(&self, key: TenantKey) -> bool {
        self.generation == key.generation && self.attached > 0
    }

    /// Latency-critical: collects the tenant's earnings for all threads, and this thread's part.
    /// Returns the amount to draw from the bucket.
    #[inline]
    pub(super) fn earn(&mut self, rate: TokenRate, now: Time, pool: &TokenPool) -> Tokens {
        if !self.entered {
            self.entered = true;
            self.part = Tokens::ZERO;
            self.part_at = now;
            self.account.enter_thread(now);
        }
        if std::mem::take(&mut self.asked) || !self.queue.is_empty() {
            self.asked_at = now;
        }
        let most = saved(rate, pool.rules().pos_limit_rounds + 1, pool);
        let earned = self.account.earn(rate, now, most);
        self.tally.earned += earned;
        self.received.rotate_right(1);
        self.received[0] = earned;
        let threads = i64::from(self.account.threads());
        let part = Tokens(rate.over(now.since(self.part_at)).0 / threads);
        self.part = (self.part + part).min(most);
        self.part_at = now;
        earned
    }

    /// Latency-critical without queued requests: stops being active here if it has been without for
    /// long and is active on other threads, which earn for it. Returns true if so.
    #[inline]
    pub(super) fn leave_to_others(&mut self, now: Time) -> bool {
        let leaves = now.since(self.asked_at) >= SILENCE && self.account.leave_to_others();
        self.entered &= !leaves;
        leaves
    }

    /// Latency-critical without queued requests: returns the time of its next visit. A tenant that
    /// is on this thread only and stays in debt is visited at growing intervals.
    #[inline]
    pub(super) fn silent_until(&self, now: Time) -> Time {
        now + now.since(self.asked_at).max(SILENCE)
    }

    /// Donates a latency-critical tenant's tokens above POS_LIMIT. Returns the amount, for the
    /// bucket.
    #[inline]
    pub(super) fn settle(&mut self, rate: TokenRate, pool: &TokenPool) -> Tokens {
        let rules = pool.rules();
        let limit = match rules.algorithm {
            Algorithm::Extended => saved(rate, rules.pos_limit_rounds, pool),
            Algorithm::Paper => self.received.iter().copied().sum(),
        };
        let given = self.account.donate(limit, rules.donation_permille);
        self.tally.given += given;
        given
    }

    /// Latency-critical and stopped: receives up to `wanted` from best effort, up to a total
    /// advance of `limit`. Returns the amount.
    #[cold]
    pub(super) fn advance(&mut self, wanted: Tokens, limit: Tokens, pool: &TokenPool) -> Tokens {
        let may = self.account.advance(wanted, limit);
        let has = pool.advance(may);
        self.account.repay(may - has);
        has
    }

    /// Sets the weight of a best-effort tenant; the share due for the old weight is claimed first.
    #[inline]
    pub(super) fn set_weight(&mut self, weight: u64, pool: &TokenPool) {
        if weight == self.weight {
            return;
        }
        if self.weight > 0 {
            self.claim(pool);
            pool.leave_backlog(self.weight);
        }
        self.weight = weight;
        self.seen = pool.enter_backlog(weight);
    }

    /// Claims a best-effort tenant's share of the quota.
    #[inline]
    pub(super) fn claim(&mut self, pool: &TokenPool) {
        let claimed = pool.claim(self.weight, &mut self.seen);
        self.claimed += claimed;
        self.tally.earned += claimed;
    }

    /// Best effort without queued requests: continues to be visited if it pays at once, and keeps
    /// for that twice the amount that it spent since the previous round. Returns whether it does.
    #[inline]
    pub(super) fn keep(&mut self, pool: &TokenPool) -> bool {
        let used = std::mem::take(&mut self.used);
        if !std::mem::take(&mut self.asked) {
            return false;
        }
        let beyond = (self.claimed - used - used).or_zero();
        pool.give(beyond);
        self.tally.given += beyond;
        self.claimed -= beyond;
        true
    }

    /// Releases the first request.
    #[inline]
    pub(super) fn release<T>(
        &mut self,
        places: &mut Places<T>,
        cost: Tokens,
        released: &mut [u64; 2],
        release: &mut impl FnMut(T, Tokens),
    ) {
        if let Some(waiting) = places.pop(&mut self.queue) {
            self.tally.released += 1;
            self.tally.spent += cost;
            released[usize::from(!waiting.operation.is_read())] += u64::from(waiting.units);
            release(waiting.item, cost);
        }
    }

    /// Removes the entry from the rounds: a best-effort tenant's tokens here are returned, and
    /// other threads have the rest of the tenant.
    pub(super) fn deactivate(&mut self, pool: &TokenPool) {
        if self.weight > 0 {
            self.claim(pool);
            pool.leave_backlog(self.weight);
            self.weight = 0;
            self.account.leave_thread();
        }
        debug_assert!(
            self.claimed >= Tokens::ZERO,
            "best effort spends what it claimed"
        );
        pool.give(self.claimed);
        self.tally.given += self.claimed;
        self.claimed = Tokens::ZERO;
        if self.entered {
            self.entered = false;
            self.account.leave_thread();
            if !matches!(self.account.contract(), Contract::LatencyCritical(_)) {
                // Tokens earned while the contract changed.
                pool.give(self.account.empty());
            }
        }
    }
}

/// Returns the tokens that a latency-critical tenant earns in `rounds` rounds of the maximum
/// length.
#[inline]
fn saved(rate: TokenRate, rounds: u64, pool: &TokenPool) -> Tokens {
    rate.over(Nanos(pool.round().0 * rounds))
}
