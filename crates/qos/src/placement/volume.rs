//! A volume, and what each of its legs takes from a node.

use super::amounts::Amounts;
use crate::device_model::DeviceModel;
use crate::limits::{LEGS_MAX, RATE_MAX, UNIT_BYTES};
use crate::slo::{Percentile, Slo, SloError};
use crate::tokens::TokenRate;
use base::Nanos;
use std::fmt;

/// Identifies a volume of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {}", self.0)
    }
}

/// The service that a volume requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A read latency at a rate of requests.
    Slo(Slo),
    /// Best effort with a minimum rate, in tokens per second: 4 KiB reads per second, at any
    /// latency. May be zero; at most [`RATE_MAX`].
    Floor(TokenRate),
}

impl Demand {
    /// Returns percentile and latency of the SLO.
    pub(super) const fn latency(&self) -> Option<(Percentile, Nanos)> {
        match self {
            Self::Slo(slo) => Some((slo.percentile, slo.latency)),
            Self::Floor(_) => None,
        }
    }
}

/// A volume to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Size in bytes: at least 1.
    pub bytes: u64,
    /// The service that it requires.
    pub demand: Demand,
    /// Number of copies, each in a failure domain of its own and able to serve the whole demand: 1
    /// to [`LEGS_MAX`].
    pub legs: u8,
}

/// An invalid volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// A size of zero.
    #[error("a volume of 0 bytes is not possible; use at least 1")]
    Empty,
    /// Number of legs out of range.
    #[error("{0} legs are out of range; use 1 to {LEGS_MAX}")]
    Legs(u8),
    /// Floor out of range.
    #[error("a floor of {0} is out of range; use at most {RATE_MAX} tokens/s")]
    Floor(TokenRate),
    /// Invalid SLO.
    #[error(transparent)]
    Slo(#[from] SloError),
}

/// What a leg of a volume takes from a node with a certain device.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Bytes, tokens and bandwidth.
    pub amounts: Amounts,
    /// Highest token rate at which the device meets the latency; zero if it never does.
    pub limit: TokenRate,
}

impl Volume {
    /// Returns the need of a leg on nodes with this device.
    ///
    /// # Errors
    /// If the volume is invalid, or costs more than the maximum rate on this device.
    pub fn need(&self, device: &DeviceModel) -> Result<Need, VolumeError> {
        if self.bytes == 0 {
            return Err(VolumeError::Empty);
        }
        if !(1..=LEGS_MAX).contains(&self.legs) {
            return Err(VolumeError::Legs(self.legs));
        }
        let (tokens, bandwidth, limit) = match self.demand {
            Demand::Slo(slo) => {
                let tokens = slo.reservation(&device.costs)?;
                let bandwidth = slo.iops.saturating_mul(u64::from(slo.request_bytes));
                let limit = device.rate_for(slo.percentile, slo.latency);
                (tokens, bandwidth, limit.unwrap_or_default())
            }
            Demand::Floor(floor) if floor.0 > RATE_MAX => return Err(VolumeError::Floor(floor)),
            Demand::Floor(floor) => (floor, floor.0 * UNIT_BYTES, device.curve.capacity()),
        };
        let bytes = self.bytes;
        let amounts = Amounts {
            bytes,
            tokens,
            bandwidth,
        };
        Ok(Need { amounts, limit })
    }
}
