//! SLOs and weights of tenants. `[ReFlex §3.2]`
//!
//! An [`Slo`] is a read latency at a percentile, for a rate of requests of one size and read
//! percentage. Validated here, admitted by [`admission`](crate::admission).

use crate::cost::{CostModel, PricedOperation, units};
use crate::limits::{
    RATE_MAX, SLO_LATENCY_MAX, SLO_LATENCY_MIN, SLO_REQUEST_BYTES_MAX, WEIGHT_DEFAULT, WEIGHT_MAX,
};
use crate::tokens::TokenRate;
use base::Nanos;
use std::fmt;

/// Names a tenant, for as long as it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

base::named! {
    /// A percentile, lowest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Percentile {
        /// Half of them.
        P50 = "p50",
        /// 95 of 100.
        P95 = "p95",
        /// 99 of 100.
        P99 = "p99",
        /// 999 of 1000.
        P999 = "p99.9",
    }
}

impl Percentile {
    /// Returns the percentile in thousandths.
    #[must_use]
    pub const fn permille(self) -> u32 {
        match self {
            Self::P50 => 500,
            Self::P95 => 950,
            Self::P99 => 990,
            Self::P999 => 999,
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A service-level objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// The share of reads for which the latency holds.
    pub percentile: Percentile,
    /// The latency of a read.
    pub latency: Nanos,
    /// Requests a second.
    pub iops: u64,
    /// The share of reads among them, in thousandths: 0 to 1000.
    pub read_permille: u16,
    /// The size of each in bytes.
    pub request_bytes: u32,
}

impl Slo {
    /// The rate of tokens that serves it, rounded up, at the prices of a mixed load: whether the
    /// load only reads is not in the tenant's hands. `[ReFlex §3.2.2]`
    ///
    /// # Errors
    /// When a number is out of its range.
    pub fn reservation(&self, model: &CostModel) -> Result<TokenRate, SloError> {
        if !(SLO_LATENCY_MIN..=SLO_LATENCY_MAX).contains(&self.latency) {
            return Err(SloError::Latency(self.latency));
        }
        if self.read_permille > 1000 {
            return Err(SloError::ReadShare(self.read_permille));
        }
        if !(1..=SLO_REQUEST_BYTES_MAX).contains(&self.request_bytes) {
            return Err(SloError::Size(self.request_bytes));
        }
        if self.iops == 0 {
            return Err(SloError::NoRate);
        }
        let cost = self.mean_cost(model);
        let rate = (u128::from(self.iops) * cost).div_ceil(1_000_000_000);
        match u64::try_from(rate) {
            Ok(rate) if rate <= RATE_MAX => Ok(TokenRate(rate)),
            _ => Err(SloError::Rate(self.iops)),
        }
    }

    /// Requests a second of this kind that a rate pays for, rounded down.
    #[must_use]
    pub(crate) fn iops_at(&self, rate: TokenRate, model: &CostModel) -> u64 {
        let iops = u128::from(rate.0) * 1_000_000_000 / self.mean_cost(model).max(1);
        u64::try_from(iops).unwrap_or(u64::MAX)
    }

    /// The mean cost of a request in billionths of a token, rounded up.
    fn mean_cost(&self, model: &CostModel) -> u128 {
        let units = units(u64::from(self.request_bytes));
        let cost = |operation| u128::from(model.mixed.cost(operation, units).0.unsigned_abs());
        let reads = u128::from(self.read_permille.min(1000));
        let sum =
            reads * cost(PricedOperation::Read) + (1000 - reads) * cost(PricedOperation::Write);
        sum.div_ceil(1000)
    }
}

/// The reason for which an SLO is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// The latency.
    #[error("a latency of {0} is out of range; use {SLO_LATENCY_MIN} to {SLO_LATENCY_MAX}")]
    Latency(Nanos),
    /// The share of reads.
    #[error("a read share of {0} thousandths is out of range; use 0 to 1000")]
    ReadShare(u16),
    /// The size of a request.
    #[error("a request of {0} bytes is out of range; use 1 to {SLO_REQUEST_BYTES_MAX}")]
    Size(u32),
    /// No requests at all.
    #[error("an SLO of 0 requests/s is not possible; use a best-effort tenant")]
    NoRate,
    /// More than any device does.
    #[error("{0} such requests/s exceed the limit of any device")]
    Rate(u64),
    /// The weight.
    #[error("a weight of {0} is out of range; use 1 to {WEIGHT_MAX}")]
    Weight(u32),
}

/// The share of a best-effort tenant in the unreserved rate, in proportion to the others: 1 to
/// [`WEIGHT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Default for Weight {
    fn default() -> Self {
        Self(WEIGHT_DEFAULT)
    }
}

impl Weight {
    /// A weight.
    ///
    /// # Errors
    /// When it is nothing, or beyond the limit.
    pub const fn new(weight: u32) -> Result<Self, SloError> {
        if weight == 0 || weight > WEIGHT_MAX {
            return Err(SloError::Weight(weight));
        }
        Ok(Self(weight))
    }

    /// Returns the weight as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The declaration of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// Latency-critical, with an SLO that must be admitted.
    LatencyCritical(Slo),
    /// Best-effort, with a weight in the unreserved rate.
    BestEffort(Weight),
}

impl Default for Declaration {
    /// Best effort, with the weight of one that names none.
    fn default() -> Self {
        Self::BestEffort(Weight::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Price;

    const SLO: Slo = Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_micros(500),
        iops: 100_000,
        read_permille: 800,
        request_bytes: 4096,
    };

    fn model() -> CostModel {
        CostModel::new(Price::milli(10_000).unwrap(), Price::milli(500).unwrap())
    }

    /// The examples of the paper's text.
    #[test]
    fn reservations_are_the_papers() {
        let rate = |slo: Slo| slo.reservation(&model()).unwrap();
        assert_eq!(rate(SLO), TokenRate(280_000));
        assert_eq!(
            rate(Slo {
                iops: 70_000,
                ..SLO
            }),
            TokenRate(196_000)
        );
        let reads = Slo {
            iops: 120_000,
            read_permille: 1000,
            ..SLO
        };
        assert_eq!(rate(reads), TokenRate(120_000));
        assert_eq!(
            rate(Slo {
                request_bytes: 32 << 10,
                ..SLO
            }),
            TokenRate(2_240_000)
        );
        assert_eq!(SLO.iops_at(TokenRate(280_000), &model()), 100_000);
        assert_eq!(SLO.iops_at(TokenRate(279_999), &model()), 99_999);
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        let error = |slo: Slo| slo.reservation(&model()).unwrap_err();
        assert_eq!(
            error(Slo {
                latency: Nanos(9_999),
                ..SLO
            }),
            SloError::Latency(Nanos(9_999))
        );
        assert_eq!(
            error(Slo {
                read_permille: 1001,
                ..SLO
            }),
            SloError::ReadShare(1001)
        );
        assert_eq!(
            error(Slo {
                request_bytes: 0,
                ..SLO
            }),
            SloError::Size(0)
        );
        assert_eq!(error(Slo { iops: 0, ..SLO }), SloError::NoRate);
        assert_eq!(
            error(Slo {
                iops: u64::MAX,
                ..SLO
            }),
            SloError::Rate(u64::MAX)
        );
        assert_eq!(Weight::new(0), Err(SloError::Weight(0)));
        Weight::new(WEIGHT_MAX + 1).unwrap_err();
    }
}
