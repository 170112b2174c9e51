//! The configuration of a run: machines, applications, stack and duration.

use base::Nanos;
use serde::{Deserialize, Serialize};
use switch::{Class, Knobs};

/// The machines of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A host and a target, connected by a network.
    Network {
        /// Cores of the host.
        host_cores: usize,
        /// Cores of the target.
        target_cores: usize,
        /// The link between them.
        link: Link,
    },
    /// One machine of two cores and its loopback: the target on core 0, applications on core 1.
    Split,
    /// One machine and its loopback: target and applications on all cores.
    Shared {
        /// Cores.
        cores: usize,
    },
}

/// A link in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bits per second.
    pub bits_per_second: u64,
    /// Latency from one end to the other.
    pub propagation: Nanos,
}

impl Link {
    /// The papers' link: 100 Gbit/s.
    pub const GBPS_100: Self = Self {
        bits_per_second: 100_000_000_000,
        propagation: Nanos(1_000),
    };
}

/// The threads that send and receive for the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosting {
    /// Dataplane threads on each core, shared by its applications: one for each class if `Latency`
    /// threads may have priority, else one for all classes.
    Worker,
    /// Each application's own thread, with its own lanes.
    Inline,
}

/// A group of identical applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppSpec {
    /// Their class.
    pub class: Class,
    /// Their number.
    pub count: usize,
    /// Bytes of a request.
    pub bytes: u32,
    /// Outstanding requests of each application.
    pub depth: u32,
    /// Share of writes, in thousandths of the requests.
    pub write_permille: u16,
    /// Requests per second of each application, in an open loop; `None` for a closed loop.
    pub rate: Option<u64>,
    /// Host core of the first application; further applications are placed on the following cores,
    /// cyclically.
    pub first_core: usize,
}

impl AppSpec {
    /// The papers' L-apps: 4 KiB random reads at depth 1.
    #[must_use]
    pub const fn latency(count: usize) -> Self {
        Self {
            class: Class::Latency,
            count,
            bytes: 4096,
            depth: 1,
            write_permille: 0,
            rate: None,
            first_core: 0,
        }
    }

    /// T-apps: random reads of `bytes` at this depth.
    #[must_use]
    pub const fn throughput(count: usize, bytes: u32, depth: u32) -> Self {
        Self {
            class: Class::Throughput,
            count,
            bytes,
            depth,
            write_permille: 0,
            rate: None,
            first_core: 0,
        }
    }
}

/// A knob change during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Simulated time of the change, from the start of the warm-up.
    pub at: Nanos,
    /// New knobs. The number of lanes stays.
    pub knobs: Knobs,
}

/// A configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The machines.
    pub topology: Topology,
    /// The threads that send and receive for the applications.
    pub hosting: Hosting,
    /// All knobs.
    pub knobs: Knobs,
    /// The applications.
    pub apps: Vec<AppSpec>,
    /// Number of targets, all on the target's machine; applications use them in turn.
    pub targets: usize,
    /// Service time of a device per request, in addition to the target's own work.
    pub device: Nanos,
    /// Warm-up, not measured.
    pub warmup: Nanos,
    /// Measured time.
    pub measured: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
    /// Knob changes during the run, in order.
    pub turns: Vec<Turn>,
}

/// A number outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}: it can be {min} to {max}")]
pub struct OutOfRange {
    /// Name of the value.
    pub what: &'static str,
    /// The value.
    pub value: u64,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number outside its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// An invalid knob.
    #[error(transparent)]
    Knob(#[from] switch::knobs::KnobError),
}

/// Maximum cores of one machine: the switch's limit.
const CORES_MAX: u64 = switch::limits::CORES_MAX as u64;
/// Maximum applications: the model keeps memory for all of their requests.
const APPS_MAX: u64 = 100_000;
/// Maximum outstanding requests of one application: the largest queue depth.
const DEPTH_MAX: u64 = 4096;
/// Maximum bytes of a request: the limit of the production stack.
const BYTES_MAX: u64 = 1 << 20;
/// Maximum targets.
const TARGETS_MAX: u64 = 1024;
/// Maximum simulated time: an hour.
const TIME_MAX_NS: u64 = 3_600_000_000_000;

impl Config {
    /// A configuration with these machines, applications and knobs, and default values for the
    /// rest: a polling stack runs in the applications' own threads, every other stack has workers.
    #[must_use]
    pub fn new(topology: Topology, knobs: Knobs, apps: Vec<AppSpec>) -> Self {
        let hosting = if knobs.polling == switch::knobs::Polling::Always {
            Hosting::Inline
        } else {
            Hosting::Worker
        };
        Self {
            topology,
            hosting,
            knobs,
            apps,
            targets: 1,
            device: Nanos::ZERO,
            warmup: Nanos::from_millis(100),
            measured: Nanos::from_secs(1),
            seed: 1,
            turns: Vec::new(),
        }
    }

    /// Cores of the host.
    #[must_use]
    pub const fn host_cores(&self) -> usize {
        match self.topology {
            Topology::Network { host_cores, .. } => host_cores,
            Topology::Split => 1,
            Topology::Shared { cores } => cores,
        }
    }

    /// Cores of the target.
    #[must_use]
    pub const fn target_cores(&self) -> usize {
        match self.topology {
            Topology::Network { target_cores, .. } => target_cores,
            Topology::Split => 1,
            Topology::Shared { cores } => cores,
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.knobs.validate()?;
        for turn in &self.turns {
            turn.knobs.validate()?;
        }
        let mut apps = 0_u64;
        for app in &self.apps {
            apps += app.count as u64;
            within("bytes of a request", u64::from(app.bytes), 512, BYTES_MAX)?;
            within("depth", u64::from(app.depth), 1, DEPTH_MAX)?;
            within("writes", u64::from(app.write_permille), 0, 1_000)?;
            within("rate", app.rate.unwrap_or(1), 1, 1_000_000_000)?;
        }
        within("number of applications", apps, 1, APPS_MAX)?;
        within("number of targets", self.targets as u64, 1, TARGETS_MAX)?;
        for (what, cores) in [
            ("number of host cores", self.host_cores()),
            ("number of target cores", self.target_cores()),
        ] {
            within(what, cores as u64, 1, CORES_MAX)?;
        }
        within("measured time in ns", self.measured.0, 1, TIME_MAX_NS)?;
        within("warm-up in ns", self.warmup.0, 0, TIME_MAX_NS)?;
        within("device time in ns", self.device.0, 0, TIME_MAX_NS)?;
        if let Topology::Network { link, .. } = self.topology {
            within(
                "rate of the link in bit/s",
                link.bits_per_second,
                1_000_000,
                10_000_000_000_000,
            )?;
            within("propagation in ns", link.propagation.0, 0, 1_000_000_000)?;
        }
        Ok(())
    }
}

/// Checks that a number is in its range.
pub(super) fn within(what: &'static str, value: u64, min: u64, max: u64) -> Result<(), OutOfRange> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(OutOfRange {
        what,
        value,
        min,
        max,
    })
}
