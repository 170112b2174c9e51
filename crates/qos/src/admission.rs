//! Admission control: whether a device can meet an SLO in addition to all other SLOs. `[ReFlex
//! §4.3]`
//!
//! The strictest latency of all tenants, minus the waiting time before the device, determines the
//! token rate of the device by its [`Curve`]; the reservations of latency-critical tenants must not
//! exceed it. A refusal has the reason, and the largest SLO that would be admitted. Invariant: an
//! admitted SLO never breaks another one; a refused tenant is not counted.

use crate::cost::CostModel;
use crate::curve::{Curve, Unattainable};
use crate::limits::{RATE_MAX, TENANTS_MAX};
use crate::slo::{Declaration, Percentile, Slo, SloError, TenantId};
use crate::token_pool::round_for;
use crate::tokens::TokenRate;
use base::Nanos;
use std::collections::BTreeMap;

#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod tests;

/// The rates at which a device is run for its tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rate at which tokens are generated.
    pub rate: TokenRate,
    /// Rate that latency-critical tenants have reserved of it.
    pub reserved: TokenRate,
    /// The longest time between two rounds of the scheduler.
    pub round: Nanos,
    /// The promise that sets the rate.
    pub strictest: Option<(Percentile, Nanos)>,
}

impl Plan {
    /// Returns the rate that best-effort tenants share.
    #[must_use]
    pub fn unreserved(&self) -> TokenRate {
        self.rate - self.reserved
    }

    /// Returns true if more was promised than there is, which only a worse device can lead to.
    #[must_use]
    pub fn is_overcommitted(&self) -> bool {
        self.reserved > self.rate
    }
}

/// The SLO that would be admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Rate that would be admitted at the latency asked for, in requests of the same kind a second.
    pub iops: Option<u64>,
    /// The requests asked for, at this latency.
    pub latency: Option<Nanos>,
}

impl std::fmt::Display for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.iops, self.latency) {
            (Some(iops), Some(latency)) => {
                write!(
                    f,
                    "{iops} requests/s, or a latency of {latency}, would be admitted"
                )
            }
            (Some(iops), None) => write!(f, "{iops} requests/s would be admitted"),
            (None, Some(latency)) => write!(f, "a latency of {latency} would be admitted"),
            (None, None) => f.write_str("no SLO would be admitted; use a best-effort tenant"),
        }
    }
}

/// The reason for which a tenant was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The SLO means nothing.
    #[error(transparent)]
    Slo(#[from] SloError),
    /// The device is never so fast.
    #[error("the device cannot meet this latency at any load: {cause}; {offer}")]
    TooStrict {
        /// The best latency of the device.
        cause: Unattainable,
        /// The SLO that would be admitted.
        offer: Offer,
    },
    /// The device has not enough tokens.
    #[error(
        "it needs {needed}; the device meets {percentile} {latency} up to {rate}, of which \
         {reserved} are reserved by other tenants; {offer}"
    )]
    NotEnough {
        /// Rate that the tenant needs.
        needed: TokenRate,
        /// Rate that the device may be given with the tenant admitted.
        rate: TokenRate,
        /// Rate that other tenants have reserved.
        reserved: TokenRate,
        /// The percentile of the promise that sets the rate.
        percentile: Percentile,
        /// Its latency.
        latency: Nanos,
        /// The SLO that would be admitted.
        offer: Offer,
    },
    /// The device has as many tenants as it can have.
    #[error("the limit of {TENANTS_MAX} tenants is reached; remove one")]
    TooMany,
}

/// The tenants of a device, and their SLOs.
#[derive(Clone, Debug)]
pub struct Admission {
    model: CostModel,
    curve: Curve,
    /// Part of a promised latency that is kept back, in thousandths.
    reserve_permille: u64,
    tenants: BTreeMap<TenantId, Declaration>,
}

impl Admission {
    /// A device without tenants, which keeps `reserve_permille` thousandths of each promised latency
    /// back.
    #[must_use]
    pub fn new(model: CostModel, curve: Curve, reserve_permille: u64) -> Self {
        Self {
            model,
            curve,
            reserve_permille: reserve_permille.min(999),
            tenants: BTreeMap::new(),
        }
    }

    /// Returns the tenants that are admitted.
    #[must_use]
    pub const fn tenants(&self) -> &BTreeMap<TenantId, Declaration> {
        &self.tenants
    }

    /// Returns the cost model.
    #[must_use]
    pub const fn model(&self) -> &CostModel {
        &self.model
    }

    /// Returns the curve: the latency of reads at each load.
    #[must_use]
    pub const fn curve(&self) -> &Curve {
        &self.curve
    }

    /// Returns the plan at present.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.plan_for(self.slos(None))
    }

    /// Returns the rate that a tenant has reserved; zero for a best-effort one.
    #[must_use]
    pub fn reservation(&self, declaration: &Declaration) -> TokenRate {
        match declaration {
            Declaration::LatencyCritical(slo) => self.reserved(slo),
            Declaration::BestEffort(_) => TokenRate::default(),
        }
    }

    /// Returns the plan with a tenant admitted, or the refusal; a tenant that is admitted already
    /// is judged by its new declaration. Changes nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, id: TenantId, declaration: &Declaration) -> Result<Plan, Refusal> {
        self.judge_beside(self.plan_for(self.slos(Some(id))), id, declaration)
    }

    /// Judges a tenant beside those that `others` is the plan of, which are all but itself.
    fn judge_beside(
        &self,
        others: Plan,
        id: TenantId,
        declaration: &Declaration,
    ) -> Result<Plan, Refusal> {
        if !self.tenants.contains_key(&id) && self.tenants.len() >= TENANTS_MAX {
            return Err(Refusal::TooMany);
        }
        let Declaration::LatencyCritical(slo) = declaration else {
            return Ok(others);
        };
        let needed = slo.reservation(&self.model)?;
        let latency = self.latency_for(slo, needed, &others);
        if let Err(cause) = self.rate_for(slo) {
            let offer = Offer {
                iops: None,
                latency,
            };
            return Err(Refusal::TooStrict { cause, offer });
        }
        let plan = self.plan_with(others, slo);
        if !plan.is_overcommitted() {
            return Ok(plan);
        }
        let left = plan.rate - others.reserved;
        let iops = Some(slo.iops_at(left, &self.model)).filter(|&iops| iops > 0);
        let (percentile, strictest) = plan.strictest.unwrap_or((slo.percentile, slo.latency));
        Err(Refusal::NotEnough {
            needed,
            rate: plan.rate,
            reserved: others.reserved,
            percentile,
            latency: strictest,
            offer: Offer { iops, latency },
        })
    }

    /// Admits a tenant, or changes its declaration; a refused one is as it was before.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&mut self, id: TenantId, declaration: Declaration) -> Result<Plan, Refusal> {
        let plan = self.judge(id, &declaration)?;
        self.tenants.insert(id, declaration);
        Ok(plan)
    }

    /// Admits these tenants and no others: all of them, or nothing changes. Those that are admitted
    /// already, as they are, come before new and changed ones.
    ///
    /// # Errors
    /// The first that is too much, and why.
    pub fn replace(
        &mut self,
        tenants: &BTreeMap<TenantId, Declaration>,
    ) -> Result<Plan, (TenantId, Refusal)> {
        let with = |tenants| Self {
            model: self.model,
            curve: self.curve.clone(),
            reserve_permille: self.reserve_permille,
            tenants,
        };
        let all = with(tenants.clone());
        if all.is_sound() {
            *self = all;
            return Ok(self.plan());
        }
        // One after the other only to find out which tenant is too much, and what would not be.
        let stays = |(id, declaration): &(&TenantId, &Declaration)| {
            self.tenants.get(id) == Some(*declaration)
        };
        let (stay, come): (Vec<_>, Vec<_>) = tenants.iter().partition(stays);
        let mut after = with(stay.into_iter().map(|(&id, &d)| (id, d)).collect());
        let mut plan = after.plan();
        for (&id, &declaration) in come {
            plan = after
                .judge_beside(plan, id, &declaration)
                .map_err(|refusal| (id, refusal))?;
            after.tenants.insert(id, declaration);
        }
        *self = after;
        Ok(plan)
    }

    /// Returns true if all would be admitted, in whichever order.
    fn is_sound(&self) -> bool {
        let mut slos = self.slos(None);
        self.tenants.len() <= TENANTS_MAX
            && slos.all(|slo| self.rate_for(slo).is_ok() && slo.reservation(&self.model).is_ok())
            && !self.plan().is_overcommitted()
    }

    /// Removes a tenant and gives its reservation back. Returns true if there was one.
    pub fn remove(&mut self, id: TenantId) -> bool {
        self.tenants.remove(&id).is_some()
    }

    /// The device was measured again. Promises stay; the plan says whether they can be kept.
    pub fn recalibrate(&mut self, model: CostModel, curve: Curve) -> Plan {
        self.model = model;
        self.curve = curve;
        self.plan()
    }

    /// Returns the tenants with promises that this device cannot keep beside those of tenants with
    /// lower numbers, and what would be admitted in their place. None, unless the device was
    /// measured again and is worse.
    #[must_use]
    pub fn unkept(&self) -> Vec<(TenantId, Refusal)> {
        let mut kept = self.plan_for(std::iter::empty());
        let refused = self.tenants.iter().filter_map(|(&id, declaration)| {
            let judged = self.judge_beside(kept, id, declaration);
            if let Ok(plan) = judged {
                kept = plan;
            }
            Some((id, judged.err()?))
        });
        refused.collect()
    }

    /// The SLOs of all tenants but one.
    fn slos(&self, but: Option<TenantId>) -> impl Iterator<Item = &Slo> {
        let others = self.tenants.iter().filter(move |&(&id, _)| Some(id) != but);
        others.filter_map(|(_, declaration)| match declaration {
            Declaration::LatencyCritical(slo) => Some(slo),
            Declaration::BestEffort(_) => None,
        })
    }

    fn plan_for<'a>(&self, slos: impl Iterator<Item = &'a Slo>) -> Plan {
        let none = Plan {
            rate: self.curve.capacity(),
            reserved: TokenRate::default(),
            round: round_for(None),
            strictest: None,
        };
        slos.fold(none, |plan, slo| self.plan_with(plan, slo))
    }

    /// Returns the plan with one more promise.
    fn plan_with(&self, mut plan: Plan, slo: &Slo) -> Plan {
        // One that was admitted and became unattainable gets what the best load measured is.
        let rate = self.rate_for(slo).unwrap_or_else(|nothing| nothing.rate);
        let promise = (slo.percentile, slo.latency);
        if plan
            .strictest
            .is_none_or(|strictest| (rate, promise) < (plan.rate, strictest))
        {
            plan.rate = rate;
            plan.strictest = Some(promise);
        }
        plan.round = plan.round.min(round_for(Some(slo.latency)));
        plan.reserved = plan.reserved + self.reserved(slo);
        plan
    }

    /// Returns the rate that an SLO reserves. One that was admitted may need more than any device has once
    /// prices are higher: it has the highest rate then, not none.
    fn reserved(&self, slo: &Slo) -> TokenRate {
        let rate = slo.reservation(&self.model);
        rate.unwrap_or(TokenRate(RATE_MAX))
    }

    /// Returns the rate at which the device keeps a promise.
    fn rate_for(&self, slo: &Slo) -> Result<TokenRate, Unattainable> {
        self.curve
            .rate_for(slo.percentile, self.of_device(slo.latency))
    }

    /// The latency at which an SLO's requests would be admitted beside the others'.
    fn latency_for(&self, slo: &Slo, needed: TokenRate, others: &Plan) -> Option<Nanos> {
        let total = others.reserved + needed;
        if total > others.rate {
            return None;
        }
        let device = self.curve.latency_at(slo.percentile, total)?;
        Some(Nanos(
            (device.0 * 1000).div_ceil(1000 - self.reserve_permille),
        ))
    }

    /// Returns the part of a promised latency that is left to the device.
    const fn of_device(&self, latency: Nanos) -> Nanos {
        Nanos(latency.0 - latency.0 * self.reserve_permille / 1000)
    }
}
