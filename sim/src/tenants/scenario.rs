//! A scenario: a device, its tenants, and their loads.

use super::{Calibrated, Processor};
use base::Nanos;
use qos::{CostModel, Curve, Declaration, TokenPoolRules};

/// Arrival process of a tenant's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Requests per second at equal intervals, in an open loop.
    Even(u64),
    /// Requests per second at random times (Poisson), in an open loop.
    Random(u64),
    /// Closed loop with this many outstanding requests.
    Depth(u32),
}

/// The load of a tenant, at random addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Arrival process of its requests.
    pub pace: Pace,
    /// Share of reads in thousandths, 0 to 1000.
    pub read_permille: u16,
    /// Bytes per request: a multiple of 4 KiB.
    pub bytes: u32,
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its declaration.
    pub declaration: Declaration,
    /// Its load.
    pub load: Load,
    /// Thread of each of its connections, which are used in turn.
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

    /// Returns the same tenant with requests of `bytes`.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: u32) -> Self {
        self.load.bytes = bytes;
        self
    }
}

/// The model of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Cost model.
    pub costs: CostModel,
    /// Read latency by load.
    pub curve: Curve,
}

/// A change during the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The tenant with this number changes its declaration, or registers again.
    Declare(usize, Declaration),
    /// The tenant with this number is removed; its further requests are refused.
    Remove(usize),
    /// The tenant with this number changes its pace.
    Pace(usize, Pace),
    /// The device takes this percentage of its service time at calibration.
    SlowDown(u32),
    /// Every die of the device is busy internally for this long.
    Storm(Nanos),
    /// The model of the device is replaced: prices and curve.
    Recalibrate(Known),
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The device.
    pub device: Calibrated,
    /// True if tokens are scheduled; otherwise requests go to the device on arrival.
    pub scheduled: bool,
    /// The scheduler's constants.
    pub rules: TokenPoolRules,
    /// Threads, 1 to 64.
    pub threads: u32,
    /// Cost of the threads' work; `None` if it takes no time.
    pub processor: Option<Processor>,
    /// Tenants, numbered from 0.
    pub tenants: Vec<Tenant>,
    /// Changes in time order, with their time since the start.
    pub changes: Vec<(Nanos, Change)>,
    /// Warm-up, not measured.
    pub warm_up: Nanos,
    /// Measured time.
    pub measured: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Setup {
    /// A scheduled device with tenants, measured for a second, on threads whose work takes no time.
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
