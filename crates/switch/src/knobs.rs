//! Everything that can be turned, as one value: what is on, and how far it goes.
//!
//! A [`Knobs`] is made from a [`Preset`] and changed from there; it says with
//! [`Knobs::validate`] what is wrong with it. Owned by the control plane, which hands a copy to
//! every core; each mechanism takes its part and can be given another while it runs (the
//! `reconfigure` of [`Doorbell`](crate::Doorbell), [`RequestSteering`](crate::RequestSteering),
//! [`ApplicationSteering`](crate::ApplicationSteering) and [`Scheduler`](crate::Scheduler)). Must
//! never reach a core unvalidated. What changes the number of lanes ([`Lanes`]) counts for
//! connections made from then on; everything else counts at once.

use crate::application_steering::{self, Hysteresis};
use crate::caravan::CaravanLimits;
use crate::class::PerClass;
use crate::doorbell::Mode;
use crate::limits;
use crate::request_steering::{self, Preference};
use crate::scheduler::{self, Order, Window};
use base::Nanos;
use std::fmt;
use std::str::FromStr;

#[cfg(test)]
mod tests;

/// How many lanes a core has to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// One for each class, each with its own egress. `[blk-switch §3.1]`
    PerClass,
    /// One for all classes, in the order of arrival. `[i10 §2.2]`
    Shared,
}

/// What a core does while it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polling {
    /// Polls while work is likely, then sleeps.
    Adaptive,
    /// Polls for ever.
    Always,
    /// Sleeps at once.
    Never,
}

/// The priority that threads which do `Latency` work ask the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadPriority {
    /// None.
    Default,
    /// Nice −20: the "SPDK+priority" of the figures. `[blk-switch §2.2]`
    Nice,
    /// The best that the process may have: real time, else nice −20, else none.
    Best,
}

/// What a send may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caravans {
    /// Several requests may share a send; otherwise each has its own.
    pub enabled: bool,
    /// At most so much while `Latency` work is near (on the core, or in the lanes to the target).
    pub beside_latency: CaravanLimits,
    /// At most so much otherwise.
    pub alone: CaravanLimits,
}

impl Caravans {
    /// What one send may carry now.
    #[must_use]
    pub const fn limits(&self, latency_is_near: bool) -> CaravanLimits {
        if !self.enabled {
            CaravanLimits {
                requests: 1,
                ..self.alone
            }
        } else if latency_is_near {
            self.beside_latency
        } else {
            self.alone
        }
    }
}

/// All knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Lanes of a core to one target.
    pub lanes: Lanes,
    /// `Latency` before `Throughput` on every core. `[blk-switch §3.1]`
    pub prioritisation: bool,
    /// The priority of threads that do `Latency` work.
    pub latency_threads: ThreadPriority,
    /// What an idle core does.
    pub polling: Polling,
    /// By which core a request leaves. `[blk-switch §3.2]`
    pub request_steering: request_steering::Rules,
    /// On which core a thread runs. `[blk-switch §3.3]`
    pub application_steering: application_steering::Rules,
    /// What a send may carry. `[i10 §2.3]`
    pub caravan: Caravans,
    /// When a caravan leaves. `[i10 §2.4]`
    pub doorbell: Mode,
    /// Bytes of a later class between two looks at the earlier ones:
    /// [`limits::QUANTUM_BYTES_MIN`] to [`limits::QUANTUM_BYTES_MAX`].
    pub quantum_bytes: u64,
    /// What each class is promised while it waits, in thousandths: 0 to
    /// [`limits::FLOOR_PERMILLE_MAX`], and no more than that in all.
    pub floor_permille: PerClass<u16>,
    /// Of what, and over what stretch.
    pub floor_window: Window,
}

impl Knobs {
    /// Everything on: the default.
    #[must_use]
    pub const fn switchyard() -> Self {
        Self {
            lanes: Lanes::PerClass,
            prioritisation: true,
            latency_threads: ThreadPriority::Best,
            polling: Polling::Adaptive,
            request_steering: request_steering::Rules {
                enabled: true,
                threshold_bytes: limits::STEERING_THRESHOLD_BYTES,
                preference: Preference::None,
            },
            application_steering: application_steering::Rules {
                enabled: true,
                period: limits::APPLICATION_STEERING_PERIOD,
                latency_load_max_bytes: limits::LATENCY_LOAD_MAX_BYTES,
                hysteresis: Hysteresis::Settled,
            },
            caravan: Caravans {
                enabled: true,
                beside_latency: CaravanLimits {
                    requests: limits::CARAVAN_REQUESTS,
                    bytes: limits::CARAVAN_BYTES,
                    iovecs: limits::CARAVAN_IOVECS,
                },
                alone: CaravanLimits {
                    requests: limits::CARAVAN_ALONE_REQUESTS,
                    bytes: limits::CARAVAN_ALONE_BYTES,
                    iovecs: limits::CARAVAN_ALONE_IOVECS,
                },
            },
            doorbell: Mode::ADAPTIVE,
            quantum_bytes: limits::QUANTUM_BYTES,
            floor_permille: PerClass::of([0, limits::FLOOR_PERMILLE]),
            floor_window: Window::Time(limits::FLOOR_WINDOW),
        }
    }

    /// What the blk-switch paper compares with: one egress and lane per core for both classes, no
    /// priority, no steering, i10's caravans of 16 requests or 64 KiB and its fixed doorbell of
    /// 50 µs. `[blk-switch §5.1]`
    #[must_use]
    pub const fn linux() -> Self {
        let mut knobs = Self::switchyard();
        knobs.lanes = Lanes::Shared;
        knobs.prioritisation = false;
        knobs.latency_threads = ThreadPriority::Default;
        knobs.request_steering.enabled = false;
        knobs.application_steering.enabled = false;
        knobs.caravan.alone = knobs.caravan.beside_latency;
        knobs.doorbell = Mode::FIXED;
        knobs.floor_permille = PerClass::of([0, 0]);
        knobs
    }

    /// [`Knobs::linux`] without batching: each request is sent when it comes.
    #[must_use]
    pub const fn nvme_tcp() -> Self {
        let mut knobs = Self::linux();
        knobs.caravan.enabled = false;
        knobs.doorbell = Mode::Immediate;
        knobs
    }

    /// Every thread polls and sends what there is, as a polling stack does; nothing is held,
    /// ordered or steered.
    #[must_use]
    pub const fn poll() -> Self {
        let mut knobs = Self::linux();
        knobs.polling = Polling::Always;
        knobs.doorbell = Mode::Immediate;
        knobs.caravan.alone = Self::switchyard().caravan.alone;
        knobs.caravan.beside_latency = knobs.caravan.alone;
        knobs
    }

    /// [`Knobs::poll`] with `Latency` threads at nice −20: the paper's "SPDK+priority".
    #[must_use]
    pub const fn poll_with_priority() -> Self {
        let mut knobs = Self::poll();
        knobs.latency_threads = ThreadPriority::Nice;
        knobs
    }

    /// The steps of the ablation: each adds one mechanism to those before it. The doorbell stays
    /// i10's all along, so that a step differs from the one before in one thing only.
    /// `[blk-switch §5.4, Fig. 15]`
    #[must_use]
    pub const fn ablation(step: Ablation) -> Self {
        if matches!(step, Ablation::Nothing) {
            return Self::linux();
        }
        let mut knobs = Self::switchyard();
        knobs.doorbell = Mode::FIXED;
        knobs.caravan.alone = knobs.caravan.beside_latency;
        knobs.floor_permille = PerClass::of([0, 0]);
        knobs.request_steering.enabled = !matches!(step, Ablation::Prioritisation);
        knobs.application_steering.enabled = matches!(step, Ablation::ApplicationSteering);
        knobs
    }

    /// The scheduler's part.
    #[must_use]
    pub const fn service(&self) -> scheduler::Rules {
        scheduler::Rules {
            order: if self.prioritisation {
                Order::Strict
            } else {
                Order::RoundRobin
            },
            quantum_bytes: self.quantum_bytes,
            floor_permille: self.floor_permille,
            window: self.floor_window,
        }
    }

    /// Whether every knob is where it may be.
    ///
    /// # Errors
    /// The first knob that is not, with what is valid.
    pub fn validate(&self) -> Result<(), KnobError> {
        self.validate_caravans()?;
        self.validate_steering()?;
        within(
            "quantum_bytes",
            self.quantum_bytes,
            limits::QUANTUM_BYTES_MIN,
            limits::QUANTUM_BYTES_MAX,
        )?;
        let total: u32 = self
            .floor_permille
            .iter()
            .map(|(_, &share)| u32::from(share))
            .sum();
        within(
            "floor_permille",
            u64::from(total),
            0,
            u64::from(limits::FLOOR_PERMILLE_MAX),
        )?;
        match self.floor_window {
            Window::Bytes(bytes) => within(
                "floor_window_bytes",
                bytes,
                limits::FLOOR_WINDOW_BYTES_MIN,
                limits::FLOOR_WINDOW_BYTES_MAX,
            ),
            Window::Time(time) => span(
                "floor_window",
                time,
                limits::FLOOR_WINDOW_MIN,
                limits::FLOOR_WINDOW_MAX,
            ),
        }
    }

    fn validate_caravans(&self) -> Result<(), KnobError> {
        caravan(
            [
                "caravan.beside_latency.requests",
                "caravan.beside_latency.bytes",
                "caravan.beside_latency.iovecs",
            ],
            &self.caravan.beside_latency,
        )?;
        caravan(
            [
                "caravan.alone.requests",
                "caravan.alone.bytes",
                "caravan.alone.iovecs",
            ],
            &self.caravan.alone,
        )?;
        let names = ["doorbell.requests", "doorbell.bytes", "doorbell.iovecs"];
        match self.doorbell {
            Mode::Immediate => Ok(()),
            Mode::Fixed { fill, delay } => {
                caravan(names, &fill)?;
                if delay < limits::DOORBELL_DELAY_MIN {
                    return Err(KnobError::DelayTooShort { delay });
                }
                span(
                    "doorbell.delay",
                    delay,
                    limits::DOORBELL_DELAY_MIN,
                    limits::DOORBELL_HOLD_MAX,
                )
            }
            Mode::Adaptive { fill, max_hold } => {
                caravan(names, &fill)?;
                span(
                    "doorbell.max_hold",
                    max_hold,
                    Nanos(1_000),
                    limits::DOORBELL_HOLD_MAX,
                )
            }
        }
    }

    fn validate_steering(&self) -> Result<(), KnobError> {
        within(
            "request_steering.threshold_bytes",
            self.request_steering.threshold_bytes,
            limits::STEERING_THRESHOLD_BYTES_MIN,
            limits::STEERING_THRESHOLD_BYTES_MAX,
        )?;
        if let Preference::NearlyFull { requests } = self.request_steering.preference {
            within(
                "request_steering.nearly_full_requests",
                u64::from(requests),
                1,
                u64::from(limits::CARAVAN_REQUESTS_MAX),
            )?;
        }
        span(
            "application_steering.period",
            self.application_steering.period,
            limits::APPLICATION_STEERING_PERIOD_MIN,
            limits::APPLICATION_STEERING_PERIOD_MAX,
        )?;
        within(
            "application_steering.latency_load_max_bytes",
            self.application_steering.latency_load_max_bytes,
            1,
            limits::LATENCY_LOAD_MAX_BYTES_MAX,
        )
    }
}

impl Default for Knobs {
    fn default() -> Self {
        Self::switchyard()
    }
}

/// The steps of the paper's ablation, each with those before it. `[blk-switch §5.4, Fig. 15]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ablation {
    /// "blk-switch-P-RS-AS": none of its mechanisms.
    Nothing,
    /// "blk-switch-RS-AS": an egress and lane per class, and prioritised processing.
    Prioritisation,
    /// "blk-switch-AS": and request steering.
    RequestSteering,
    /// "blk-switch": and application steering.
    ApplicationSteering,
}

/// A position of all knobs that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// [`Knobs::switchyard`].
    Switchyard,
    /// [`Knobs::linux`].
    Linux,
    /// [`Knobs::nvme_tcp`].
    NvmeTcp,
    /// [`Knobs::poll`].
    Poll,
    /// [`Knobs::poll_with_priority`].
    PollWithPriority,
    /// [`Knobs::ablation`].
    Ablation(Ablation),
}

/// Presets and how people write them.
const PRESETS: [(Preset, &str); 9] = [
    (Preset::Switchyard, "switchyard"),
    (Preset::Linux, "linux"),
    (Preset::NvmeTcp, "nvme-tcp"),
    (Preset::Poll, "poll"),
    (Preset::PollWithPriority, "poll-priority"),
    (Preset::Ablation(Ablation::Nothing), "blk-switch-p-rs-as"),
    (
        Preset::Ablation(Ablation::Prioritisation),
        "blk-switch-rs-as",
    ),
    (Preset::Ablation(Ablation::RequestSteering), "blk-switch-as"),
    (
        Preset::Ablation(Ablation::ApplicationSteering),
        "blk-switch",
    ),
];

impl Preset {
    /// All of them, with their names.
    pub const ALL: &'static [(Self, &'static str)] = &PRESETS;

    /// Its knobs.
    #[must_use]
    pub const fn knobs(self) -> Knobs {
        match self {
            Self::Switchyard => Knobs::switchyard(),
            Self::Linux => Knobs::linux(),
            Self::NvmeTcp => Knobs::nvme_tcp(),
            Self::Poll => Knobs::poll(),
            Self::PollWithPriority => Knobs::poll_with_priority(),
            Self::Ablation(step) => Knobs::ablation(step),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PRESETS
            .iter()
            .find(|(preset, _)| preset == self)
            .map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Preset {
    type Err = KnobError;

    /// Takes the names of [`Preset::ALL`], in any case.
    fn from_str(word: &str) -> Result<Self, KnobError> {
        PRESETS
            .iter()
            .find(|(_, name)| word.eq_ignore_ascii_case(name))
            .map(|(preset, _)| *preset)
            .ok_or_else(|| KnobError::NoPreset {
                word: word.chars().take(32).collect(),
            })
    }
}

/// A knob that is where it may not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// A number out of its range.
    #[error("{knob} is {value}: it can be {min} to {max}")]
    OutOfRange {
        /// Which knob.
        knob: &'static str,
        /// Where it is.
        value: u64,
        /// The least that is valid.
        min: u64,
        /// The most that is valid.
        max: u64,
    },
    /// A span of time out of its range.
    #[error("{knob} is {value}: it can be {min} to {max}")]
    SpanOutOfRange {
        /// Which knob.
        knob: &'static str,
        /// Where it is.
        value: Nanos,
        /// The least that is valid.
        min: Nanos,
        /// The most that is valid.
        max: Nanos,
    },
    /// A fixed doorbell that is shorter than its timer is worth.
    #[error(
        "doorbell.delay is {delay}: a fixed doorbell waits {} at least; for no delay say `immediate`",
        limits::DOORBELL_DELAY_MIN
    )]
    DelayTooShort {
        /// The delay.
        delay: Nanos,
    },
    /// A word that names no preset.
    #[error("{word:?} is no preset: say one of {}", names())]
    NoPreset {
        /// The word, at most its first 32 characters.
        word: String,
    },
}

/// The names of all presets, for people.
fn names() -> String {
    PRESETS.map(|(_, name)| format!("`{name}`")).join(", ")
}

fn within(knob: &'static str, value: u64, min: u64, max: u64) -> Result<(), KnobError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(KnobError::OutOfRange {
            knob,
            value,
            min,
            max,
        })
    }
}

fn span(knob: &'static str, value: Nanos, min: Nanos, max: Nanos) -> Result<(), KnobError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(KnobError::SpanOutOfRange {
            knob,
            value,
            min,
            max,
        })
    }
}

/// Limits of requests, bytes and segments, by their names.
fn caravan(names: [&'static str; 3], limit: &CaravanLimits) -> Result<(), KnobError> {
    within(
        names[0],
        u64::from(limit.requests),
        1,
        u64::from(limits::CARAVAN_REQUESTS_MAX),
    )?;
    within(names[1], limit.bytes, 1, limits::CARAVAN_BYTES_MAX)?;
    within(
        names[2],
        u64::from(limit.iovecs),
        1,
        u64::from(limits::CARAVAN_IOVECS_MAX),
    )
}
