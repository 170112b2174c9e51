//! The account of a tenant, shared by all threads: its contract, and the tokens of a
//! latency-critical tenant.
//!
//! The [registry](crate::tenants) creates it; every reference to the tenant is a reference count of
//! it. Accounts have no numbers, so none can be reused while a reference remains. Threads read the
//! contract in every round, so a change takes effect in the next round. A latency-critical tenant
//! has one balance for all threads; the first thread to look collects its earnings for all of them.
//! Invariant: each nanosecond is earned once.

use crate::slo::{TenantId, Weight};
use crate::tokens::{TokenRate, Tokens};
use base::{Nanos, Time};
#[cfg(loom)]
use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;

/// The contract of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Tokens at a reserved rate.
    LatencyCritical(TokenRate),
    /// Best effort, with a weight in the unreserved rate.
    BestEffort(Weight),
    /// A removed tenant: no further requests.
    Closed,
}

/// Position of the kind in a word, in the two upper bits; the rate or weight is below.
const KIND_SHIFT: u32 = 62;
const LATENCY_CRITICAL: u64 = 1;
const BEST_EFFORT: u64 = 2;

impl Contract {
    fn pack(self) -> u64 {
        match self {
            Self::LatencyCritical(rate) => LATENCY_CRITICAL << KIND_SHIFT | rate.0 & VALUE,
            Self::BestEffort(weight) => BEST_EFFORT << KIND_SHIFT | u64::from(weight.get()),
            Self::Closed => 0,
        }
    }

    fn unpack(word: u64) -> Self {
        let value = word & VALUE;
        match word >> KIND_SHIFT {
            LATENCY_CRITICAL => Self::LatencyCritical(TokenRate(value)),
            BEST_EFFORT => {
                let weight = u32::try_from(value)
                    .ok()
                    .and_then(|value| Weight::new(value).ok());
                Self::BestEffort(weight.unwrap_or_default())
            }
            _ => Self::Closed,
        }
    }
}

const VALUE: u64 = (1 << KIND_SHIFT) - 1;

/// A tenant, as shared by the threads.
#[derive(Debug)]
pub struct Account {
    id: TenantId,
    contract: AtomicU64,
    /// Tokens of a latency-critical tenant; negative for a debt.
    balance: AtomicI64,
    /// Time up to which it has earned, in nanoseconds.
    earned_to: AtomicU64,
    /// Tokens advanced by best effort and not yet repaid.
    advanced: AtomicI64,
    /// Number of threads on which it is active, that is, considered in every round.
    threads: AtomicU32,
    /// Rounds in which it was stopped at its limit with queued requests.
    limited: AtomicU64,
}

impl Account {
    pub(crate) fn new(id: TenantId, contract: Contract) -> Self {
        Self {
            id,
            contract: AtomicU64::new(contract.pack()),
            balance: AtomicI64::new(0),
            earned_to: AtomicU64::new(0),
            advanced: AtomicI64::new(0),
            threads: AtomicU32::new(0),
            limited: AtomicU64::new(0),
        }
    }

    /// Creates the account of a tenant that is not registered and has no SLO: the probe that keeps
    /// an idle device's curve up to date, with a share of the spare capacity like a best-effort
    /// tenant.
    #[must_use]
    pub fn unregistered(weight: Weight) -> Self {
        Self::new(TenantId(u32::MAX), Contract::BestEffort(weight))
    }

    /// Returns the tenant's identifier.
    #[must_use]
    pub const fn id(&self) -> TenantId {
        self.id
    }

    /// Returns the tenant's current contract.
    #[inline]
    #[must_use]
    pub fn contract(&self) -> Contract {
        Contract::unpack(self.contract.load(Ordering::Relaxed))
    }

    /// Returns the tokens of a latency-critical tenant.
    #[must_use]
    pub fn balance(&self) -> Tokens {
        Tokens(self.balance.load(Ordering::Relaxed))
    }

    /// Returns the number of rounds in which a latency-critical tenant was stopped at NEG_LIMIT
    /// with queued requests: its SLO is too small. `[ReFlex §3.2.2, Algorithm 1 line 7]`
    #[must_use]
    pub fn limited_rounds(&self) -> u64 {
        self.limited.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, contract: Contract) {
        self.contract.store(contract.pack(), Ordering::Relaxed);
    }

    /// Takes all tokens: of a tenant that is no longer latency-critical.
    pub(crate) fn empty(&self) -> Tokens {
        Tokens(self.balance.swap(0, Ordering::Relaxed))
    }

    /// Returns the tokens that best effort has advanced to a latency-critical tenant and that are
    /// not repaid.
    #[must_use]
    pub fn advanced(&self) -> Tokens {
        Tokens(self.advanced.load(Ordering::Relaxed))
    }

    /// Adds a thread that considers it in every round. The first thread starts the clock: tokens
    /// not requested before went to other tenants.
    pub(crate) fn enter_thread(&self, now: Time) {
        // Set before the thread is counted: a second thread that finds it counted earns from then
        // on. The last thread may leave between the two loads.
        if self.threads.load(Ordering::Relaxed) == 0 {
            self.start_clock(now);
        }
        if self.threads.fetch_add(1, Ordering::AcqRel) == 0 {
            self.start_clock(now);
        }
    }

    fn start_clock(&self, now: Time) {
        let silent_since = self.earned_to.fetch_max(now.0, Ordering::AcqRel);
        if let Contract::LatencyCritical(rate) = self.contract() {
            self.repay(rate.over(now.since(Time(silent_since))));
        }
    }

    /// Removes such a thread.
    pub(crate) fn leave_thread(&self) {
        self.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// Removes such a thread unless it is the only one. Returns true if other threads remain, which
    /// collect the tenant's earnings.
    pub(crate) fn leave_to_others(&self) -> bool {
        let others = |threads: u32| (threads > 1).then(|| threads - 1);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.threads.fetch_update(success, failure, others).is_ok()
    }

    /// Returns the number of threads on which it is active; at least 1, this thread.
    #[inline]
    pub(crate) fn threads(&self) -> u32 {
        self.threads.load(Ordering::Relaxed).max(1)
    }

    /// Collects the tokens earned since the last call by any thread, up to a balance of `most`.
    #[inline]
    pub(crate) fn earn(&self, rate: TokenRate, now: Time, most: Tokens) -> Tokens {
        let mut from = self.earned_to.load(Ordering::Relaxed);
        loop {
            if now.0 <= from {
                return Tokens::ZERO;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match self
                .earned_to
                .compare_exchange_weak(from, now.0, success, failure)
            {
                Ok(_) => break,
                Err(other) => from = other,
            }
        }
        let room = (most - self.balance()).or_zero();
        let due = rate.over(Nanos(now.0 - from));
        let earned = due.min(room);
        self.put(earned);
        if due > earned {
            self.repay(due - earned);
        }
        earned
    }

    /// Advances up to `most` to it, up to a total advance of `limit`. Returns the amount.
    pub(crate) fn advance(&self, most: Tokens, limit: Tokens) -> Tokens {
        let mut before = self.advanced();
        loop {
            let more = most.min(limit - before).or_zero();
            if more == Tokens::ZERO {
                return more;
            }
            let after = (before + more).0;
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self
                .advanced
                .compare_exchange(before.0, after, success, failure)
            {
                Ok(_) => return more,
                Err(now) => before = Tokens(now),
            }
        }
    }

    /// Notes that it has returned `amount` to best effort.
    #[inline]
    pub(crate) fn repay(&self, amount: Tokens) {
        let mut before = self.advanced();
        while before > Tokens::ZERO {
            let after = before.0.saturating_sub(amount.0).max(0);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self
                .advanced
                .compare_exchange(before.0, after, success, failure)
            {
                Ok(_) => return,
                Err(now) => before = Tokens(now),
            }
        }
    }

    #[inline]
    pub(crate) fn put(&self, amount: Tokens) {
        self.balance.fetch_add(amount.0, Ordering::Relaxed);
    }

    /// Takes `amount` out of a balance that is still `seen`.
    #[inline]
    pub(crate) fn spend(&self, seen: Tokens, amount: Tokens) -> Result<(), Tokens> {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let after = (seen - amount).0;
        match self
            .balance
            .compare_exchange(seen.0, after, success, failure)
        {
            Ok(_) => Ok(()),
            Err(now) => Err(Tokens(now)),
        }
    }

    /// Takes `permille` of the balance above `limit`, and returns the amount.
    pub(crate) fn donate(&self, limit: Tokens, permille: i64) -> Tokens {
        let mut balance = self.balance();
        while balance > limit {
            let part = Tokens(balance.0 / 1000 * permille + balance.0 % 1000 * permille / 1000);
            match self.spend(balance, part) {
                Ok(()) => {
                    self.repay(part);
                    return part;
                }
                Err(now) => balance = now,
            }
        }
        Tokens::ZERO
    }

    #[cold]
    pub(crate) fn note_limited(&self) {
        self.limited.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn contracts_pass_through_a_word() {
        for contract in [
            Contract::LatencyCritical(TokenRate(0)),
            Contract::LatencyCritical(TokenRate(1_000_000_000)),
            Contract::BestEffort(Weight::new(1).unwrap()),
            Contract::BestEffort(Weight::new(10_000).unwrap()),
            Contract::Closed,
        ] {
            assert_eq!(Contract::unpack(contract.pack()), contract);
        }
    }

    #[test]
    fn time_is_earned_once_and_not_while_nobody_asks() {
        let account = Account::new(TenantId(1), Contract::Closed);
        let rate = TokenRate(1_000);
        let most = Tokens::whole(100);
        account.enter_thread(Time(1_000_000_000));
        assert_eq!(account.earn(rate, Time(1_000_000_000), most), Tokens::ZERO);
        let later = Time(1_001_000_000);
        assert_eq!(account.earn(rate, later, most), Tokens::whole(1));
        assert_eq!(account.earn(rate, later, most), Tokens::ZERO);
        assert_eq!(
            account.earn(rate, Time(5), most),
            Tokens::ZERO,
            "time goes on"
        );
        assert_eq!(
            account.earn(rate, Time(9_000_000_000), most),
            Tokens::whole(99)
        );
        assert_eq!(account.balance(), most);
        assert_eq!(
            account.donate(most, 900),
            Tokens::ZERO,
            "not above the limit"
        );
        assert_eq!(account.donate(Tokens::whole(99), 900), Tokens::whole(90));
        assert_eq!(account.balance(), Tokens::whole(10));
    }
}
