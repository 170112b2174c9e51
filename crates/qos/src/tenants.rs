//! The registry of a device's tenants. `[ReFlex §4.3]`
//!
//! One per device, owned by the control plane. An admitted tenant gets an [`Account`], which its
//! connections attach to the schedulers of their threads. Changes write new rates to the accounts
//! and the [`TokenPool`], which threads read in their next round. Invariant: a refused tenant never
//! gets an account.

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

    /// Returns the pool that the threads share.
    #[must_use]
    pub const fn pool(&self) -> &Arc<TokenPool> {
        &self.pool
    }

    /// Returns the admission control, with what was promised.
    #[must_use]
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The account of a tenant that is registered: asked for every connection.
    #[must_use]
    pub fn account(&self, id: TenantId) -> Option<&Arc<Account>> {
        self.accounts.get(&id)
    }

    /// Registers a tenant, or changes one that is; from the next round on, it has what is returned
    /// here. One that is refused is as it was before: not registered, or with its old promise.
    ///
    /// # Errors
    /// Why not.
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

    /// Removes a tenant. Its account is closed: nothing more is released for it, and what waits is
    /// to be [drained](crate::TokenScheduler::drain). Whether there was one.
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

    /// Registers these tenants and no others: all of it, or nothing where one is refused; the error
    /// then has its name and the reason. The account of a tenant that is declared as before stays as it
    /// is.
    ///
    /// # Errors
    /// The tenant that is too much, and the reason.
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

    /// The device was measured again: prices, rates and reservations follow.
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

    /// The tokens that all tenants have in their accounts, less their debts.
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
