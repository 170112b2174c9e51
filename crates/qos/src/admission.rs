//! Admission control: whether a tenant's SLO can be met together with all other SLOs, and the
//! remaining capacity. `[ReFlex §4.3]`
//!
//! The strictest latency of all tenants, less the wait before the device, gives by the device's
//! [`Curve`] the rate at which tokens may be generated; the reservations of latency-critical
//! tenants must not exceed it. A refusal states the reason, and an SLO that would be admitted.
//! Invariant: no admission breaks an existing SLO, and refused tenants do not count.

use crate::cost::CostModel;
use crate::curve::{Curve, Unattainable};
use crate::device_model::DeviceModel;
use crate::limits::{RATE_MAX, TENANTS_MAX};
use crate::slo::{Declaration, Percentile, Slo, SloError, TenantId};
use crate::token_pool::round_for;
use crate::tokens::TokenRate;
use base::Nanos;
use std::collections::BTreeMap;

#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod tests;

/// The token rates of a device with its current tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rate of token generation.
    pub rate: TokenRate,
    /// Part of it reserved by latency-critical tenants.
    pub reserved: TokenRate,
    /// Maximum time between two rounds of the scheduler.
    pub round: Nanos,
    /// The SLO that determines the rate: percentile and latency; `None` without an SLO.
    pub strictest: Option<(Percentile, Nanos)>,
}

impl Plan {
    /// Returns the rate shared by best-effort tenants.
    #[must_use]
    pub fn unreserved(&self) -> TokenRate {
        self.rate - self.reserved
    }

    /// Returns true if reservations exceed the rate. This occurs only after the device has become
    /// slower.
    #[must_use]
    pub fn is_overcommitted(&self) -> bool {
        self.reserved > self.rate
    }
}

/// SLOs that would be admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Rate that would be admitted at the requested latency, in requests of the same kind per
    /// second.
    pub iops: Option<u64>,
    /// Latency at which the requested rate would be admitted.
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

/// Why a tenant was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Invalid SLO.
    #[error(transparent)]
    Slo(#[from] SloError),
    /// The device cannot meet the latency at any load.
    #[error("the device cannot meet this latency at any load: {cause}; {offer}")]
    TooStrict {
        /// Best latency of the device.
        cause: Unattainable,
        /// An SLO that would be admitted.
        offer: Offer,
    },
    /// The device's token rate is too low.
    #[error(
        "it needs {needed}; the device meets {percentile} {latency} up to {rate}, of which \
         {reserved} are reserved by other tenants; {offer}"
    )]
    NotEnough {
        /// Rate required by the tenant.
        needed: TokenRate,
        /// Rate of the device with the tenant admitted.
        rate: TokenRate,
        /// Rate reserved by other tenants.
        reserved: TokenRate,
        /// Percentile of the SLO that determines the rate.
        percentile: Percentile,
        /// Latency of that SLO.
        latency: Nanos,
        /// An SLO that would be admitted.
        offer: Offer,
    },
    /// The device has the maximum number of tenants.
    #[error("the limit of {TENANTS_MAX} tenants is reached; remove one")]
    TooMany,
}

/// The tenants of a device, and their SLOs.
#[derive(Clone, Debug)]
pub struct Admission {
    device: DeviceModel,
    tenants: BTreeMap<TenantId, Declaration>,
}

impl Admission {
    /// A device without tenants that keeps `reserve_permille` thousandths of each SLO's latency in
    /// reserve.
    #[must_use]
    pub fn new(model: CostModel, curve: Curve, reserve_permille: u64) -> Self {
        Self {
            device: DeviceModel::new(model, curve, reserve_permille),
            tenants: BTreeMap::new(),
        }
    }

    /// Returns the admitted tenants.
    #[must_use]
    pub const fn tenants(&self) -> &BTreeMap<TenantId, Declaration> {
        &self.tenants
    }

    /// Returns the cost model.
    #[must_use]
    pub const fn model(&self) -> &CostModel {
        &self.device.costs
    }

    /// Returns the curve: read latency by load.
    #[must_use]
    pub const fn curve(&self) -> &Curve {
        &self.device.curve
    }

    /// Returns the current plan.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.plan_for(self.slos(None))
    }

    /// Returns the rate that a tenant reserves; zero for a best-effort tenant.
    #[must_use]
    pub fn reservation(&self, declaration: &Declaration) -> TokenRate {
        match declaration {
            Declaration::LatencyCritical(slo) => self.reserved(slo),
            Declaration::BestEffort(_) => TokenRate::default(),
        }
    }

    /// Returns the plan with a tenant admitted, or the refusal; a tenant that is already admitted
    /// is judged by its new declaration. Changes nothing.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn judge(&self, id: TenantId, declaration: &Declaration) -> Result<Plan, Refusal> {
        self.judge_beside(self.plan_for(self.slos(Some(id))), id, declaration)
    }

    /// Judges a tenant with `others`, the plan of all tenants except itself.
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
        let needed = slo.reservation(&self.device.costs)?;
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
        let iops = Some(slo.iops_at(left, &self.device.costs)).filter(|&iops| iops > 0);
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

    /// Admits a tenant, or changes its declaration; if refused, it stays as before.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit(&mut self, id: TenantId, declaration: Declaration) -> Result<Plan, Refusal> {
        let plan = self.judge(id, &declaration)?;
        self.tenants.insert(id, declaration);
        Ok(plan)
    }

    /// Replaces all tenants: all of these are admitted, or nothing changes. Unchanged tenants take
    /// precedence over new and changed ones.
    ///
    /// # Errors
    /// The first tenant that cannot be admitted, and why.
    pub fn replace(
        &mut self,
        tenants: &BTreeMap<TenantId, Declaration>,
    ) -> Result<Plan, (TenantId, Refusal)> {
        let with = |tenants| Self {
            device: self.device.clone(),
            tenants,
        };
        let all = with(tenants.clone());
        if all.is_sound() {
            *self = all;
            return Ok(self.plan());
        }
        // Judges one by one only to find the tenant that is refused, and an offer.
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

    /// Returns true if all would be admitted, in any order.
    fn is_sound(&self) -> bool {
        let mut slos = self.slos(None);
        self.tenants.len() <= TENANTS_MAX
            && slos.all(|slo| {
                self.rate_for(slo).is_ok() && slo.reservation(&self.device.costs).is_ok()
            })
            && !self.plan().is_overcommitted()
    }

    /// Removes a tenant and releases its reservation. Returns true if it existed.
    pub fn remove(&mut self, id: TenantId) -> bool {
        self.tenants.remove(&id).is_some()
    }

    /// Sets a new measurement of the device. SLOs stay; the plan shows whether they can be met.
    pub fn recalibrate(&mut self, model: CostModel, curve: Curve) -> Plan {
        self.device.costs = model;
        self.device.curve = curve;
        self.plan()
    }

    /// Returns the tenants whose SLOs this device cannot meet together with those of tenants with
    /// lower numbers, with offers. Empty unless the device was measured again and is slower.
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

    /// Returns the SLOs of all tenants except one.
    fn slos(&self, but: Option<TenantId>) -> impl Iterator<Item = &Slo> {
        let others = self.tenants.iter().filter(move |&(&id, _)| Some(id) != but);
        others.filter_map(|(_, declaration)| match declaration {
            Declaration::LatencyCritical(slo) => Some(slo),
            Declaration::BestEffort(_) => None,
        })
    }

    fn plan_for<'a>(&self, slos: impl Iterator<Item = &'a Slo>) -> Plan {
        let none = Plan {
            rate: self.device.curve.capacity(),
            reserved: TokenRate::default(),
            round: round_for(None),
            strictest: None,
        };
        slos.fold(none, |plan, slo| self.plan_with(plan, slo))
    }

    /// Returns the plan with one more SLO.
    fn plan_with(&self, mut plan: Plan, slo: &Slo) -> Plan {
        // An admitted SLO that has become unattainable gets the lowest measured load.
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

    /// Returns the rate that an SLO reserves. After prices have risen, an admitted SLO may need
    /// more than the maximum rate: it then has the maximum rate, not zero.
    fn reserved(&self, slo: &Slo) -> TokenRate {
        let rate = slo.reservation(&self.device.costs);
        rate.unwrap_or(TokenRate(RATE_MAX))
    }

    /// Returns the rate at which the device meets an SLO's latency.
    fn rate_for(&self, slo: &Slo) -> Result<TokenRate, Unattainable> {
        self.device.rate_for(slo.percentile, slo.latency)
    }

    /// Returns the latency at which an SLO's rate would be admitted together with the plan
    /// `others`.
    fn latency_for(&self, slo: &Slo, needed: TokenRate, others: &Plan) -> Option<Nanos> {
        let total = others.reserved + needed;
        if total > others.rate {
            return None;
        }
        self.device.latency_at(slo.percentile, total)
    }
}
