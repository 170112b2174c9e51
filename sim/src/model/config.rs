//! The configuration of a run: the machines, the applications, the stack, and the time.

use base::Nanos;
use serde::{Deserialize, Serialize};
use switch::{Class, Knobs};

/// Which machines there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A host and a target of so many cores each, with a network between them.
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
    /// One machine of so many cores and its loopback: target and applications on all of them.
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
    /// From one end to the other.
    pub propagation: Nanos,
}

impl Link {
    /// The papers' link, and two of them.
    pub const GBPS_100: Self = Self {
        bits_per_second: 100_000_000_000,
        propagation: Nanos(1_000),
    };
}

/// The threads that send and receive for the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosting {
    /// Dataplane threads on each core, shared by its applications: one for each class where
    /// `Latency` threads may go first, else one for all.
    Worker,
    /// Each application's own thread, with lanes of its own.
    Inline,
}

/// Applications that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppSpec {
    /// Their class.
    pub class: Class,
    /// Their number.
    pub count: usize,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests that each keeps in flight.
    pub depth: u32,
    /// Thousandths of the requests that are writes.
    pub write_permille: u16,
    /// Requests per second of each, whatever is in flight; a closed loop without.
    pub rate: Option<u64>,
    /// The host core of the first one; the others follow on the next ones, round and round.
    pub first_core: usize,
}

impl AppSpec {
    /// The papers' L-apps: 4 KiB random reads, one at a time.
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

    /// T-apps: random reads of `bytes`, `depth` at a time.
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

/// Knobs that turn while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// After so much simulated time, warm-up included.
    pub at: Nanos,
    /// To these positions. The number of lanes stays.
    pub knobs: Knobs,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which machines there are.
    pub topology: Topology,
    /// The threads that send and receive for the applications.
    pub hosting: Hosting,
    /// The position of all knobs.
    pub knobs: Knobs,
    /// The applications.
    pub apps: Vec<AppSpec>,
    /// Targets, all on the target's machine; applications take them in turn.
    pub targets: usize,
    /// The time that a device takes for a request, beyond the target's own work.
    pub device: Nanos,
    /// Not measured.
    pub warmup: Nanos,
    /// Measured.
    pub measured: Nanos,
    /// Decides everything that is random.
    pub seed: u64,
    /// Knobs that turn while it runs, in order.
    pub turns: Vec<Turn>,
}

/// A number out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}: it can be {min} to {max}")]
pub struct OutOfRange {
    /// Of what.
    pub what: &'static str,
    /// The number.
    pub value: u64,
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// A run that can not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number out of its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// A knob that is where it may not be.
    #[error(transparent)]
    Knob(#[from] switch::knobs::KnobError),
}

/// Cores of one machine at most: what the switch knows.
const CORES_MAX: u64 = switch::limits::CORES_MAX as u64;
/// Applications at most: thousands, and memory for all of their requests.
const APPS_MAX: u64 = 100_000;
/// Requests in flight of one application at most: the deepest queue.
const DEPTH_MAX: u64 = 4096;
/// Bytes of a request at most: what the production stack takes.
const BYTES_MAX: u64 = 1 << 20;
/// Targets at most.
const TARGETS_MAX: u64 = 1024;
/// Simulated time at most: an hour.
const TIME_MAX_NS: u64 = 3_600_000_000_000;

impl Config {
    /// These machines and applications with a position of the knobs, and usual values for the
    /// rest: a polling stack runs in the applications' own threads, every other one has workers.
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

    /// Checks that it can be run.
    ///
    /// # Errors
    /// The first thing that is not as it may be.
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
