//! The registry of a device's tenants, which applies admission. `[ReFlex §4.3]`
//!
//! Owned by the control plane, one per device. An admitted tenant gets an [`Account`], which its
//! connections attach to the schedulers of their threads; every change writes the new rates to the
//! accounts and the [`TokenPool`], where threads read them in their next round. Invariant: a
//! refused tenant has no account, however often it retries.

use crate::account::{Account, Contract};
use crate::admission::{Admission, Plan, Refusal};
use crate::cost::CostModel;
use crate::curve::Curve;
use crate::slo::{Declaration, TenantId};
use crate::token_pool::{TokenPool, TokenPoolRules};
use crate::tokens::Tokens;
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// A device's tenants.
#[derive(Debug)]
pub struct Tenants {
    admission: Admission,
    pool: Arc<TokenPool>,
    accounts: BTreeMap<TenantId, Arc<Account>>,
}

impl Tenants {
    /// A device without tenants.
    #[must_use]
    pub fn new(rules: TokenPoolRules, model: CostModel, curve: Curve) -> Self {
        let admission = Admission::new(model, curve, rules.latency_reserve_permille);
        let plan = admission.plan();
        let pool = Arc::new(TokenPool::new(rules, plan.rate, plan.round, &model));
        Self {
            admission,
            pool,
            accounts: BTreeMap::new(),
        }
    }

    /// Returns the pool shared by the threads.
    #[must_use]
    pub const fn pool(&self) -> &Arc<TokenPool> {
        &self.pool
    }

    /// Returns the admission control with the current SLOs.
    #[must_use]
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns the account of a registered tenant; called for every connection.
    #[must_use]
    pub fn account(&self, id: TenantId) -> Option<&Arc<Account>> {
        self.accounts.get(&id)
    }

    /// Registers a tenant, or changes a registered one; the returned plan takes effect in the next
    /// round. A refused tenant stays as before: not registered, or with its old declaration.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn set(&mut self, id: TenantId, declaration: Declaration) -> Result<Plan, Refusal> {
        let plan = self.admission.admit(id, declaration)?;
        let contract = self.contract(&declaration);
        let account = self.accounts.entry(id);
        let account = account.or_insert_with(|| Arc::new(Account::new(id, contract)));
        account.set(contract);
        if !matches!(contract, Contract::LatencyCritical(_)) {
            self.pool.give(account.empty());
        }
        self.pool.set_rate(plan.rate, plan.round);
        Ok(plan)
    }

    /// Removes a tenant; returns true if it existed. Its account is closed: no further requests are
    /// released, and queued requests must be [drained](crate::TokenScheduler::drain).
    pub fn remove(&mut self, id: TenantId) -> bool {
        self.admission.remove(id);
        let Some(account) = self.accounts.remove(&id) else {
            return false;
        };
        account.set(Contract::Closed);
        self.pool.give(account.empty());
        let plan = self.admission.plan();
        self.pool.set_rate(plan.rate, plan.round);
        true
    }

    /// Replaces all tenants by these, or changes nothing if one is refused. The account of a tenant
    /// with an unchanged declaration stays.
    ///
    /// # Errors
    /// The tenant that is refused, and why.
    pub fn replace(
        &mut self,
        tenants: &BTreeMap<TenantId, Declaration>,
    ) -> Result<Plan, (TenantId, Refusal)> {
        let before = self.admission.tenants();
        let is_new = |(id, declaration): &(&TenantId, &_)| before.get(id) != Some(*declaration);
        let declared: Vec<_> = tenants.iter().filter(is_new).collect();
        let plan = self.admission.replace(tenants)?;
        let gone: Vec<_> = self.accounts.keys().copied().collect();
        for id in gone.iter().filter(|id| !tenants.contains_key(id)) {
            if let Some(account) = self.accounts.remove(id) {
                account.set(Contract::Closed);
                self.pool.give(account.empty());
            }
        }
        for (&id, declaration) in declared {
            let contract = self.contract(declaration);
            let account = self.accounts.entry(id);
            let account = account.or_insert_with(|| Arc::new(Account::new(id, contract)));
            account.set(contract);
            if !matches!(contract, Contract::LatencyCritical(_)) {
                self.pool.give(account.empty());
            }
        }
        self.pool.set_rate(plan.rate, plan.round);
        Ok(plan)
    }

    /// Sets a new measurement of the device: prices, rates and reservations follow.
    pub fn recalibrate(&mut self, model: CostModel, curve: Curve) -> Plan {
        let plan = self.admission.recalibrate(model, curve);
        self.pool.set_prices(&model);
        for (id, declaration) in self.admission.tenants() {
            if let Some(account) = self.accounts.get(id) {
                account.set(self.contract(declaration));
            }
        }
        self.pool.set_rate(plan.rate, plan.round);
        plan
    }

    /// Returns the tokens in all accounts, less their debts.
    #[must_use]
    pub fn balances(&self) -> Tokens {
        self.accounts
            .values()
            .map(|account| account.balance())
            .sum()
    }

    fn contract(&self, declaration: &Declaration) -> Contract {
        match declaration {
            Declaration::LatencyCritical(_) => {
                Contract::LatencyCritical(self.admission.reservation(declaration))
            }
            Declaration::BestEffort(weight) => Contract::BestEffort(*weight),
        }
    }
}
