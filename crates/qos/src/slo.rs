//! The SLO of a latency-critical tenant, or the weight of a best-effort tenant. `[ReFlex §3.2]`
//!
//! A [`Slo`] states a read latency at a percentile, for a rate of requests of one size with a share
//! of reads. An operator declares it, this module checks it, and [`admission`](crate::admission)
//! judges it.

use crate::cost::{CostModel, PricedOperation, units};
use crate::limits::{
    RATE_MAX, SLO_LATENCY_MAX, SLO_LATENCY_MIN, SLO_REQUEST_BYTES_MAX, WEIGHT_DEFAULT, WEIGHT_MAX,
};
use crate::tokens::TokenRate;
use base::Nanos;
use std::fmt;

/// Identifies a tenant while it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

base::named! {
    /// The share of reads that must meet a latency, the laxest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Percentile {
        /// 50 %.
        P50 = "p50",
        /// 95 %.
        P95 = "p95",
        /// 99 %.
        P99 = "p99",
        /// 99.9 %.
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
    /// Percentile of reads that must meet the latency.
    pub percentile: Percentile,
    /// Latency of a read.
    pub latency: Nanos,
    /// Requests per second.
    pub iops: u64,
    /// Share of reads in thousandths: 0 to 1000.
    pub read_permille: u16,
    /// Bytes per request.
    pub request_bytes: u32,
}

impl Slo {
    /// Returns the token rate of its requests, rounded up, at the prices of a mixed load: the
    /// tenant does not control whether the device's load is read-only. `[ReFlex §3.2.2]`
    ///
    /// # Errors
    /// If a number is out of range.
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

    /// Returns the requests of this kind per second that a rate pays for, rounded down.
    #[must_use]
    pub(crate) fn iops_at(&self, rate: TokenRate, model: &CostModel) -> u64 {
        let iops = u128::from(rate.0) * 1_000_000_000 / self.mean_cost(model).max(1);
        u64::try_from(iops).unwrap_or(u64::MAX)
    }

    /// Returns the mean cost of a request in billionths of a token, rounded up.
    fn mean_cost(&self, model: &CostModel) -> u128 {
        let units = units(u64::from(self.request_bytes));
        let cost = |operation| u128::from(model.mixed.cost(operation, units).0.unsigned_abs());
        let reads = u128::from(self.read_permille.min(1000));
        let sum =
            reads * cost(PricedOperation::Read) + (1000 - reads) * cost(PricedOperation::Write);
        sum.div_ceil(1000)
    }
}

/// An invalid SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// Latency out of range.
    #[error("a latency of {0} is out of range; use {SLO_LATENCY_MIN} to {SLO_LATENCY_MAX}")]
    Latency(Nanos),
    /// Share of reads out of range.
    #[error("a read share of {0} thousandths is out of range; use 0 to 1000")]
    ReadShare(u16),
    /// Request size out of range.
    #[error("a request of {0} bytes is out of range; use 1 to {SLO_REQUEST_BYTES_MAX}")]
    Size(u32),
    /// A rate of zero.
    #[error("an SLO of 0 requests/s is not possible; use a best-effort tenant")]
    NoRate,
    /// A rate above the limit.
    #[error("{0} such requests/s exceed the limit of any device")]
    Rate(u64),
    /// Weight out of range.
    #[error("a weight of {0} is out of range; use 1 to {WEIGHT_MAX}")]
    Weight(u32),
}

/// The relative share of a best-effort tenant in the unreserved rate: 1 to [`WEIGHT_MAX`].
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
    /// If it is zero, or above the limit.
    pub const fn new(weight: u32) -> Result<Self, SloError> {
        if weight == 0 || weight > WEIGHT_MAX {
            return Err(SloError::Weight(weight));
        }
        Ok(Self(weight))
    }

    /// Returns the weight.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The declaration of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// Latency-critical: an SLO, subject to admission.
    LatencyCritical(Slo),
    /// Best effort, with a weight in the unreserved rate.
    BestEffort(Weight),
}

impl Default for Declaration {
    /// Best effort with the default weight.
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
