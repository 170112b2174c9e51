//! Values of the features that a controller only keeps.

use base::Time;
use wire::nvme::feature::VOLATILE_WRITE_CACHE_ENABLE;

/// The values of the features that are only kept: a host may set and read them back, and nothing
/// here depends on them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub(super) arbitration: u32,
    pub(super) power_management: u32,
    /// Thresholds of the composite temperature: over and under, kelvin.
    pub(super) temperature: [u32; 2],
    pub(super) volatile_write_cache: u32,
    pub(super) write_atomicity: u32,
    /// Timestamp in milliseconds, and when it was set.
    pub(super) timestamp: Option<(u64, Time)>,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            arbitration: 0,
            power_management: 0,
            temperature: [343, 0],
            volatile_write_cache: VOLATILE_WRITE_CACHE_ENABLE,
            write_atomicity: 0,
            timestamp: None,
        }
    }
}
