//! A measured device: the prices of its requests, and the token rate at which it meets a latency.
//! `[ReFlex §3.2.1]`
//!
//! [`admission`](crate::admission) uses it for one device, [`placement`](crate::placement) for the
//! devices of a cluster.

use crate::cost::CostModel;
use crate::curve::{Curve, Unattainable};
use crate::slo::Percentile;
use crate::tokens::TokenRate;
use base::Nanos;

/// Cost model and curve of a device, and the part of each SLO's latency that is kept in reserve for
/// the wait before the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Prices of requests.
    pub costs: CostModel,
    /// Read latency by load.
    pub curve: Curve,
    reserve_permille: u64,
}

impl DeviceModel {
    /// A device of which `reserve_permille` thousandths (at most 999) of each SLO's latency are
    /// kept in reserve.
    #[must_use]
    pub fn new(costs: CostModel, curve: Curve, reserve_permille: u64) -> Self {
        Self {
            costs,
            curve,
            reserve_permille: reserve_permille.min(999),
        }
    }

    /// Returns the highest token rate at which the device meets the latency of an SLO.
    ///
    /// # Errors
    /// If it exceeds the latency at any load.
    pub fn rate_for(
        &self,
        percentile: Percentile,
        latency: Nanos,
    ) -> Result<TokenRate, Unattainable> {
        let device = Nanos(latency.0 - latency.0 * self.reserve_permille / 1000);
        self.curve.rate_for(percentile, device)
    }

    /// Returns the strictest latency of an SLO that the device meets at a token rate; `None` beyond
    /// the measured loads.
    #[must_use]
    pub fn latency_at(&self, percentile: Percentile, rate: TokenRate) -> Option<Nanos> {
        let device = self.curve.latency_at(percentile, rate)?;
        Some(Nanos(
            (device.0.saturating_mul(1000)).div_ceil(1000 - self.reserve_permille),
        ))
    }
}
