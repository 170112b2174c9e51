//! One round of a token scheduler: Algorithm 1. `[ReFlex §3.2.2]`

use super::TokenScheduler;
use super::entry::Entry;
use super::queue::Places;
use crate::account::Contract;
use crate::cost::Prices;
use crate::limits::{LOAN_REQUESTS, ROUND_MIN, WEIGHT_PARTS};
use crate::slo::Weight;
use crate::token_pool::{Algorithm, TokenPool};
use crate::tokens::{TokenRate, Tokens};
use base::mutation::{self, Mutation};
use base::{Nanos, Time};

impl<T> TokenScheduler<T> {
    /// Releases the requests that can pay: calls `release` with each request and its cost.
    pub fn round(&mut self, now: Time, release: &mut impl FnMut(T, Tokens)) {
        if self.latency_critical.is_empty() && self.best_effort.is_empty() {
            self.deactivate_all(Time::NEVER);
            return;
        }
        if !self.present && self.places.used() > 0 {
            self.present = true;
            self.pool.activate(self.thread);
        }
        if self.prices.edition != self.pool.edition() {
            self.prices.edition = self.pool.edition();
            self.prices.model = self.pool.model();
        }
        self.prices.load = self.pool.load(now);
        let generated = self.pool.generate(now);
        self.totals.generated += generated;
        if mutation::active(Mutation::TokensGivenTwice) {
            self.pool.give(generated);
        }
        self.turn = self.turn.wrapping_add(1);
        let mut wait = self.serve_latency_critical(now, release);
        for at in 0..self.best_effort.len() {
            self.enter_backlog(self.best_effort[at]);
        }
        let closed = self.pool.close_if_due(now);
        self.totals.expired += closed.expired;
        self.totals.forgiven += closed.forgiven;
        let quota = self.pool.quota();
        wait = wait.min(self.serve_best_effort(release));
        self.finish(now, wait, quota);
    }

    /// Ends a round in which shares up to `quota` were claimed.
    fn finish(&mut self, now: Time, wait: Nanos, quota: u64) {
        let [reads, others] = std::mem::take(&mut self.released);
        if reads + others > 0 {
            self.pool.share().add(now, reads, others);
            self.report();
        }
        while let Some(index) = self.resting.pop() {
            self.deactivate(index);
        }
        let kept = std::mem::take(&mut self.kept);
        if self.places.used() > 0 {
            self.pool.visit(self.thread, quota);
            self.deadline = now + wait.max(ROUND_MIN).min(self.pool.round());
        } else if kept {
            // A tenant that stops requesting returns the tokens that it kept. Until then it takes a
            // share of each round from the other tenants.
            self.pool.visit(self.thread, quota);
            self.deadline = now + self.pool.round();
        } else {
            self.deactivate_all(self.silent_until);
        }
    }

    /// Removes the thread from the pool's rounds, because no queued request can be released. Until
    /// `deadline`, no tenant needs a visit.
    #[inline]
    fn deactivate_all(&mut self, deadline: Time) {
        self.deadline = deadline;
        if self.present {
            self.present = false;
            self.pool.deactivate(self.thread);
        }
    }

    /// Lines 4 to 12 of Algorithm 1. Returns the time after which the first stopped tenant may
    /// continue.
    fn serve_latency_critical(&mut self, now: Time, release: &mut impl FnMut(T, Tokens)) -> Nanos {
        let count = self.latency_critical.len();
        let start = self.turn.checked_rem(count).unwrap_or(0);
        let mut drawn = Tokens::ZERO;
        self.silent_until = Time::NEVER;
        for step in 0..count {
            let index = self.latency_critical[around(start, step, count)];
            let Contract::LatencyCritical(rate) = self.entries[index as usize].account.contract()
            else {
                self.relist(index);
                continue;
            };
            let (entry, places) = (&mut self.entries[index as usize], &mut self.places);
            let (pool, prices) = (&*self.pool, self.prices.prices());
            drawn += entry.earn(rate, now, pool);
            let released = &mut self.released;
            self.unreported += serve_from_balance(entry, places, pool, prices, released, release);
            let given = entry.settle(rate, pool);
            drawn -= given;
            if !entry.queue.is_empty() {
                self.stopped.push(index);
            } else if given > Tokens::ZERO || entry.leave_to_others(now) {
                // It has saved its maximum, or other threads save for it: it is visited again at
                // its next request.
                self.resting.push(index);
            } else {
                self.silent_until = self.silent_until.min(entry.silent_until(now));
            }
        }
        self.pool.give(-drawn);
        if self.stopped.is_empty() {
            return Nanos(u64::MAX);
        }
        self.serve_stopped(now, release)
    }

    /// Lends to stopped tenants: only now does the bucket contain the earnings of the thread's
    /// other tenants. Returns the time after which the first tenant that is still stopped may
    /// continue.
    #[cold]
    fn serve_stopped(&mut self, now: Time, release: &mut impl FnMut(T, Tokens)) -> Nanos {
        let mut wait = Nanos(u64::MAX);
        for &index in &self.stopped {
            let (entry, places) = (&mut self.entries[index as usize], &mut self.places);
            let (pool, prices) = (&*self.pool, self.prices.prices());
            let Contract::LatencyCritical(rate) = entry.account.contract() else {
                continue;
            };
            if lend(entry, rate, places, pool, prices) > Tokens::ZERO {
                let released = &mut self.released;
                self.unreported +=
                    serve_from_balance(entry, places, pool, prices, released, release);
            }
            if entry.queue.is_empty() {
                self.silent_until = self.silent_until.min(entry.silent_until(now));
            } else {
                wait = wait.min(time_until_served(entry, rate, pool));
            }
        }
        self.stopped.clear();
        wait
    }

    /// Lines 13 to 21. Returns the time after which the first waiting tenant may be able to pay.
    fn serve_best_effort(&mut self, release: &mut impl FnMut(T, Tokens)) -> Nanos {
        let mut wait = Nanos(u64::MAX);
        let count = self.best_effort.len();
        let start = self.turn.checked_rem(count).unwrap_or(0);
        let rate = self.pool.rate();
        for step in 0..count {
            let index = self.best_effort[around(start, step, count)];
            let (entry, places) = (&mut self.entries[index as usize], &mut self.places);
            if !matches!(entry.account.contract(), Contract::BestEffort(_)) {
                self.relist(index);
                continue;
            }
            let (pool, prices) = (&*self.pool, self.prices.prices());
            entry.claim(pool);
            let mut missing = Tokens::ZERO;
            while let Some(first) = places.first(&entry.queue) {
                let cost = prices.cost(first.operation, first.units);
                if cost > entry.claimed {
                    missing = cost - entry.claimed;
                    break;
                }
                if !mutation::active(Mutation::TokensNotTaken) {
                    entry.claimed -= cost;
                }
                entry.used += cost;
                self.unreported += cost;
                entry.release(places, cost, &mut self.released, release);
            }
            if !entry.queue.is_empty() {
                entry.used = Tokens::ZERO;
                wait = wait.min(rate.time_for(missing));
            } else if entry.keep(pool) {
                self.kept = true;
            } else {
                self.resting.push(index);
            }
        }
        wait
    }

    /// Makes a best-effort tenant backlogged, or updates its weight.
    #[inline]
    fn enter_backlog(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if let Contract::BestEffort(weight) = entry.account.contract() {
            if entry.weight == 0 {
                entry.account.enter_thread(Time::ZERO);
            }
            entry.set_weight(parts(weight, entry.account.threads()), &self.pool);
        }
    }

    /// The contract is of another class than the entry's list.
    #[cold]
    fn relist(&mut self, index: u32) {
        // It leaves this list at the end of the round, and joins the other list with its queued
        // requests.
        self.resting.push(index);
    }
}

/// Returns the position `step` after `start` on a list of `count`, cyclically.
#[inline]
const fn around(start: usize, step: usize, count: usize) -> usize {
    let at = start + step;
    if at < count { at } else { at - count }
}

/// Returns a thread's part of a weight.
#[inline]
fn parts(weight: Weight, threads: u32) -> u64 {
    (u64::from(weight.get()) * WEIGHT_PARTS / u64::from(threads.max(1))).max(1)
}

/// Releases requests of a latency-critical tenant while it has more than NEG_LIMIT. If it is
/// overdrawn and other threads serve it, too, this thread's part of the rate and of NEG_LIMIT is a
/// second limit. Returns the tokens spent.
#[inline]
fn serve_from_balance<T>(
    entry: &mut Entry,
    places: &mut Places<T>,
    pool: &TokenPool,
    prices: &Prices,
    released: &mut [u64; 2],
    release: &mut impl FnMut(T, Tokens),
) -> Tokens {
    if entry.queue.is_empty() {
        return Tokens::ZERO;
    }
    let limit = pool.rules().neg_limit;
    let threads = entry.account.threads();
    let part_limit = part_of(limit, threads);
    let mut balance = entry.account.balance();
    loop {
        let mut spent = Tokens::ZERO;
        let mut count = 0u32;
        for waiting in places.iter(&entry.queue) {
            let left = balance - spent;
            let may = left > limit
                && (threads == 1 || left > Tokens::ZERO || entry.part - spent > part_limit);
            if !may {
                break;
            }
            spent += prices.cost(waiting.operation, waiting.units);
            count += 1;
        }
        if count > 0
            && let Err(other) = entry.account.spend(balance, spent)
        {
            balance = other;
            continue;
        }
        entry.part = (entry.part - spent).max(limit);
        for _ in 0..count {
            let cost = places.first(&entry.queue);
            let cost = cost.map_or(Tokens::ZERO, |w| prices.cost(w.operation, w.units));
            entry.release(places, cost, released, release);
        }
        return spent;
    }
}

/// Gives a stopped tenant the tokens that it can use: those that no other tenant wants, or an
/// advance from best effort. Returns the amount.
fn lend<T>(
    entry: &mut Entry,
    rate: TokenRate,
    places: &Places<T>,
    pool: &TokenPool,
    prices: &Prices,
) -> Tokens {
    if pool.rules().algorithm == Algorithm::Paper {
        entry.tally.limited_rounds += 1;
        entry.account.note_limited();
        return Tokens::ZERO;
    }
    let limit = pool.rules().neg_limit;
    let most = rate.over(pool.rules().advance);
    let mut short = limit - entry.account.balance();
    let threads = entry.account.threads();
    if threads > 1 {
        short = short.max(part_of(limit, threads) - entry.part);
    }
    let waiting = places.iter(&entry.queue).take(LOAN_REQUESTS);
    let costs = waiting.map(|w| prices.cost(w.operation, w.units));
    let wanted = costs.sum::<Tokens>() + short.or_zero();
    let mut loan = pool.borrow(wanted);
    let mut over = true;
    if loan == Tokens::ZERO {
        loan = entry.advance(wanted, most, pool);
        over = entry.account.advanced() >= most;
    }
    if over {
        entry.tally.limited_rounds += 1;
        entry.account.note_limited();
    }
    if loan > Tokens::ZERO {
        entry.account.put(loan);
        entry.part += loan;
        entry.tally.taken += loan;
    }
    loan
}

/// Returns the time after which a stopped latency-critical tenant may continue.
fn time_until_served(entry: &Entry, rate: TokenRate, pool: &TokenPool) -> Nanos {
    let limit = pool.rules().neg_limit;
    let threads = entry.account.threads();
    let balance = entry.account.balance();
    let until = |missing: Tokens| rate.time_for(missing + Tokens(1));
    let more_than_limit = until(limit - balance);
    if threads == 1 {
        return more_than_limit;
    }
    let part = until(part_of(limit, threads) - entry.part).0;
    let part = Nanos(part.saturating_mul(threads.into()));
    more_than_limit.max(until(-balance).min(part))
}

/// Returns the part of NEG_LIMIT of each of `threads` threads.
#[inline]
fn part_of(limit: Tokens, threads: u32) -> Tokens {
    Tokens(limit.0 / i64::from(threads))
}
