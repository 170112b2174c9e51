//! A simple reference of Algorithm 1 for one thread: every tenant is visited in every round, and
//! there is no shared state.

use super::entry::Kind;
use crate::account::Contract;
use crate::cost::{PricedOperation, Prices};
use crate::limits::{
    DONATION_PERMILLE, LOAN_REQUESTS, NEG_LIMIT_TOKENS, POS_LIMIT_ROUNDS, SPAN_ROUNDS,
};
use std::collections::VecDeque;

const TOKEN: i128 = 1_000_000_000;
const NEG_LIMIT: i128 = -(NEG_LIMIT_TOKENS as i128) * TOKEN;

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) contract: Contract,
    pub(super) waiting: VecDeque<(PricedOperation, u32, u32)>,
    pub(super) balance: i128,
    /// Tokens advanced by best effort and not repaid.
    pub(super) advanced: i128,
    pub(super) claimed: i128,
    treated_as: Option<Kind>,
    /// Its weight while it waits for its share.
    backlogged: i128,
    earned_to: Option<i128>,
}

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) rate: i128,
    pub(super) round: i128,
    /// Time in which a tenant earns its maximum advance, in nanoseconds.
    pub(super) advance: i128,
    pub(super) prices: Prices,
    pub(super) tenants: Vec<Tenant>,
    pub(super) bucket: i128,
    generated_to: i128,
    last_earned: Vec<i128>,
}

impl Oracle {
    pub(super) fn new(rate: u64, round: u64, prices: Prices, contracts: &[Contract]) -> Self {
        let tenant = |&contract| Tenant {
            contract,
            waiting: VecDeque::new(),
            balance: 0,
            advanced: 0,
            claimed: 0,
            treated_as: None,
            backlogged: 0,
            earned_to: None,
        };
        Self {
            rate: rate.into(),
            round: round.into(),
            advance: 0,
            prices,
            tenants: contracts.iter().map(tenant).collect(),
            bucket: 0,
            generated_to: 0,
            last_earned: vec![0; contracts.len()],
        }
    }

    pub(super) fn set(&mut self, at: usize, contract: Contract) {
        let tenant = &mut self.tenants[at];
        tenant.contract = contract;
        if !matches!(contract, Contract::LatencyCritical(_)) {
            self.bucket += std::mem::take(&mut tenant.balance);
        }
    }

    pub(super) fn enqueue(&mut self, at: usize, operation: PricedOperation, units: u32, item: u32) {
        let tenant = &mut self.tenants[at];
        tenant.waiting.push_back((operation, units, item));
        if tenant.treated_as.is_none() {
            tenant.treated_as = Kind::of(tenant.contract);
        }
    }

    /// Returns the released requests, in any order; tenants take loans in the order of `lent_to`.
    pub(super) fn round(&mut self, now: u64, lent_to: &[usize]) -> Vec<u32> {
        let now = i128::from(now);
        let mut released = Vec::new();
        if self
            .tenants
            .iter()
            .all(|tenant| tenant.treated_as.is_none())
        {
            return released;
        }
        let span = (now - self.generated_to).clamp(0, self.round * i128::from(SPAN_ROUNDS));
        self.bucket += self.rate * span;
        self.generated_to = self.generated_to.max(now);
        for at in 0..self.tenants.len() {
            self.latency_critical(at, now, &mut released);
        }
        for &at in lent_to {
            self.lend(at, &mut released);
        }
        self.best_effort(&mut released);
        for tenant in &mut self.tenants {
            tenant.rest(&mut self.bucket);
        }
        released
    }

    fn latency_critical(&mut self, at: usize, now: i128, released: &mut Vec<u32>) {
        let tenant = &mut self.tenants[at];
        let Contract::LatencyCritical(rate) = tenant.contract else {
            return;
        };
        if tenant.treated_as != Some(Kind::LatencyCritical) {
            return;
        }
        let rate = i128::from(rate.0);
        let pos_limit = rate * self.round * i128::from(POS_LIMIT_ROUNDS);
        // Time without a request earns nothing.
        let from = tenant.earned_to.unwrap_or(now.max(self.last_earned[at]));
        let earned = rate * (now - from).max(0);
        let earned = earned.min((pos_limit + rate * self.round - tenant.balance).max(0));
        // Tokens that it does not earn are left to best effort.
        tenant.repay(rate * (now - self.last_earned[at]).max(0) - earned);
        tenant.earned_to = Some(now);
        self.last_earned[at] = now;
        tenant.balance += earned;
        self.bucket -= earned;
        tenant.spend(&self.prices, released);
        if tenant.balance > pos_limit {
            let given = tenant.balance * i128::from(DONATION_PERMILLE) / 1000;
            tenant.balance -= given;
            tenant.repay(given);
            self.bucket += given;
            if tenant.waiting.is_empty() {
                tenant.treated_as = None;
                tenant.earned_to = None;
            }
        }
    }

    /// A stopped tenant continues with the tokens that all tenants have left in the bucket.
    fn lend(&mut self, at: usize, released: &mut Vec<u32>) {
        let backlogged = self.tenants.iter().any(|tenant| tenant.backlogged > 0);
        let tenant = &mut self.tenants[at];
        let Contract::LatencyCritical(rate) = tenant.contract else {
            return;
        };
        if tenant.waiting.is_empty() {
            return;
        }
        let waiting = tenant.waiting.iter().take(LOAN_REQUESTS);
        let costs = waiting.map(|&(operation, units, _)| self.prices.cost(operation, units).0);
        let wanted = i128::from(costs.sum::<i64>()) + NEG_LIMIT - tenant.balance;
        let mut loan = wanted.min(self.bucket);
        if backlogged {
            loan = loan.min(i128::from(rate.0) * self.advance - tenant.advanced);
            tenant.advanced += loan.max(0);
        }
        tenant.balance += loan.max(0);
        self.bucket -= loan.max(0);
        tenant.spend(&self.prices, released);
    }

    fn best_effort(&mut self, released: &mut Vec<u32>) {
        let mut weights = 0;
        for tenant in &mut self.tenants {
            // A tenant that has changed class counts until the end of the round.
            tenant.backlogged = tenant.weight().unwrap_or(tenant.backlogged);
            weights += tenant.backlogged;
        }
        let burst = self.rate * self.round;
        let mut quota = 0;
        if self.bucket <= 0 {
            self.bucket = self.bucket.max(-burst * i128::from(SPAN_ROUNDS));
        } else if weights == 0 {
            self.bucket = self.bucket.min(burst);
        } else {
            quota = self.bucket / weights;
            self.bucket %= weights;
        }
        for tenant in &mut self.tenants {
            tenant.claimed += quota * tenant.backlogged;
            if tenant.weight().is_none() {
                continue;
            }
            while let Some(&(operation, units, item)) = tenant.waiting.front() {
                let cost = i128::from(self.prices.cost(operation, units).0);
                if cost > tenant.claimed {
                    break;
                }
                tenant.claimed -= cost;
                tenant.waiting.pop_front();
                released.push(item);
            }
            if tenant.waiting.is_empty() {
                tenant.treated_as = None;
            }
        }
    }
}

impl Tenant {
    /// Latency-critical: releases requests, down to NEG_LIMIT.
    fn spend(&mut self, prices: &Prices, released: &mut Vec<u32>) {
        while self.balance > NEG_LIMIT {
            let Some((operation, units, item)) = self.waiting.pop_front() else {
                break;
            };
            self.balance -= i128::from(prices.cost(operation, units).0);
            released.push(item);
        }
    }

    fn repay(&mut self, amount: i128) {
        self.advanced = (self.advanced - amount).max(0);
    }

    /// Returns its weight if it is treated as a best-effort tenant and is one.
    fn weight(&self) -> Option<i128> {
        match self.contract {
            Contract::BestEffort(weight) if self.treated_as == Some(Kind::BestEffort) => {
                Some(i128::from(weight.get()) * i128::from(crate::limits::WEIGHT_PARTS))
            }
            _ => None,
        }
    }

    /// Ends a round: a tenant without queued requests keeps nothing, and a change of class is
    /// applied.
    fn rest(&mut self, bucket: &mut i128) {
        if self.treated_as == Kind::of(self.contract) && self.treated_as.is_some() {
            return;
        }
        *bucket += std::mem::take(&mut self.claimed);
        self.backlogged = 0;
        self.earned_to = None;
        self.treated_as = None;
        if !self.waiting.is_empty() {
            self.treated_as = Kind::of(self.contract);
        }
    }
}
