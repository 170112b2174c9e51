//! A scenario: a device, its tenants, and their loads.

use super::{Calibrated, Processor};
use base::Nanos;
use qos::{CostModel, Curve, Declaration, TokenPoolRules};

/// The arrivals of a tenant's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many a second, evenly, whether or not earlier ones are done.
    Even(u64),
    /// So many a second at random (Poisson), whether or not earlier ones are done.
    Random(u64),
    /// So many at a time, a new one for each that ends.
    Depth(u32),
}

/// The load of a tenant, at random places of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Arrivals of its requests.
    pub pace: Pace,
    /// The share of reads, in thousandths: 0 to 1000.
    pub read_permille: u16,
    /// Bytes of a request: pages of 4 KiB.
    pub bytes: u32,
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its declaration.
    pub declaration: Declaration,
    /// Its load.
    pub load: Load,
    /// The thread of each of its connections, which are taken in turn.
    pub threads: Vec<u32>,
}

impl Tenant {
    /// A tenant with requests of 4 KiB.
    #[must_use]
    pub const fn new(
        declaration: Declaration,
        pace: Pace,
        read_permille: u16,
        threads: Vec<u32>,
    ) -> Self {
        let load = Load {
            pace,
            read_permille,
            bytes: 4096,
        };
        Self {
            declaration,
            load,
            threads,
        }
    }

    /// The same tenant with requests of other sizes.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: u32) -> Self {
        self.load.bytes = bytes;
        self
    }
}

/// The model of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The cost of requests.
    pub costs: CostModel,
    /// The latency of reads at each load.
    pub curve: Curve,
}

/// A change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The tenant with this number asks for something else, or comes back.
    Declare(usize, Declaration),
    /// The tenant with this number is removed; what it still asks for is refused.
    Remove(usize),
    /// The tenant with this number asks at another pace.
    Pace(usize, Pace),
    /// The device takes so many hundredths of the time that it took when it was calibrated.
    SlowDown(u32),
    /// Every die of the device is busy with itself for so long.
    Storm(Nanos),
    /// The device is known to be as it is now: prices and curve follow.
    Recalibrate(Known),
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The device.
    pub device: Calibrated,
    /// True if tokens are scheduled; otherwise requests go to the device as they come.
    pub scheduled: bool,
    /// The scheduler's constants.
    pub rules: TokenPoolRules,
    /// Threads, 1 to 64.
    pub threads: u32,
    /// Cost of their work; `None` where it takes no time.
    pub processor: Option<Processor>,
    /// Numbered from 0.
    pub tenants: Vec<Tenant>,
    /// In the order of time, from the beginning.
    pub changes: Vec<(Nanos, Change)>,
    /// Not counted.
    pub warm_up: Nanos,
    /// Counted.
    pub measured: Nanos,
    /// Of all that is random.
    pub seed: u64,
}

impl Setup {
    /// A device with tenants and a scheduler for a second, on threads with work that takes no time.
    #[must_use]
    pub fn new(device: Calibrated, threads: u32, tenants: Vec<Tenant>, seed: u64) -> Self {
        Self {
            device,
            scheduled: true,
            rules: TokenPoolRules::default(),
            threads,
            processor: None,
            tenants,
            changes: Vec::new(),
            warm_up: Nanos::from_millis(200),
            measured: Nanos::from_secs(1),
            seed,
        }
    }
}
