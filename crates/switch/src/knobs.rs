//! Knobs: all switch parameters that can change at run time, as one value.
//!
//! A [`Knobs`] starts from a [`Preset`] and is changed by its fields, or as text by the table of
//! all knobs ([`Knob`]); [`Knobs::validate`] checks it. The control plane sends validated copies to
//! all cores; mechanisms apply them with `reconfigure` ([`Doorbell`](crate::Doorbell),
//! [`RequestSteering`](crate::RequestSteering),
//! [`ApplicationSteering`](crate::ApplicationSteering), [`ClassScheduler`](crate::ClassScheduler)).
//! [`Lanes`] applies to new connections, everything else at once.

use crate::application_steering::{self, Hysteresis};
use crate::caravan::CaravanLimits;
use crate::class::PerClass;
use crate::class_scheduler::{self, Order, Window};
use crate::doorbell::Mode;
use crate::latency_activity::LatencyActivity;
use crate::limits;
use crate::request_steering::{self, Preference};
use crate::thread_scaling::ThreadBounds;
use base::Nanos;

mod error;
mod preset;
mod table;
#[cfg(test)]
mod tests;

pub use error::KnobError;
pub use preset::{Ablation, Preset};
pub use table::{Knob, KnobRange, KnobSetting, KnobValue};

/// The lanes of a core to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// One for each class, each with its own egress. `[blk-switch §3.1]`
    PerClass,
    /// One for all classes, in the order of arrival. `[i10 §2.2]`
    Shared,
}

/// The behaviour of a core that has nothing to do.
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
}

/// Limits of caravans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caravans {
    /// Several requests may share a send; otherwise each has its own.
    pub enabled: bool,
    /// Limits while `Latency` work is active (on the core, or in the lanes to the target).
    pub beside_latency: CaravanLimits,
    /// Factor on those limits while its requests are sparse: 1 to
    /// [`limits::CARAVAN_SPARSE_FACTOR_MAX`].
    pub sparse_factor: u32,
    /// Limits otherwise.
    pub alone: CaravanLimits,
}

impl Caravans {
    /// Returns the limits of a caravan beside this `Latency` activity.
    #[must_use]
    pub fn limits(&self, latency: LatencyActivity) -> CaravanLimits {
        if !self.enabled {
            return CaravanLimits {
                requests: 1,
                ..self.alone
            };
        }
        match latency {
            LatencyActivity::Dense => self.beside_latency,
            LatencyActivity::Sparse => self.beside_latency.times(self.sparse_factor),
            LatencyActivity::Absent => self.alone,
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
    /// The behaviour of an idle core.
    pub polling: Polling,
    /// Parameters of request steering: the core through which a request leaves. `[blk-switch §3.2]`
    pub request_steering: request_steering::RequestSteeringRules,
    /// Parameters of application steering: the core on which a thread runs. `[blk-switch §3.3]`
    pub application_steering: application_steering::ApplicationSteeringRules,
    /// True if a target serves queues on their arrival cores while classes contend
    /// ([`affinity`](crate::affinity)); a part of its application steering.
    pub queue_affinity: bool,
    /// True if a turn of a target's core takes no more than a caravan from hosts that ask for much
    /// while others ask for little ([`light_hosts`](crate::light_hosts)).
    pub light_hosts: bool,
    /// Limits of caravans. `[i10 §2.3]`
    pub caravan: Caravans,
    /// Bytes of later classes that leave between two `Latency` requests, on average, from which
    /// on these are sparse ([`latency_activity`](crate::latency_activity)):
    /// [`limits::SPARSE_LATENCY_BYTES_MIN`] to [`limits::SPARSE_LATENCY_BYTES_MAX`].
    pub sparse_latency_bytes: u64,
    /// Mode of the doorbell. `[i10 §2.4]`
    pub doorbell: Mode,
    /// Submitters with `Latency` work of a core up to which these send for themselves, while no
    /// `Throughput` work is outstanding there: 0 to [`limits::DIRECT_SUBMITTERS_MAX`].
    pub direct_submitters: u32,
    /// Longest time for which the notification of a completion that may wait is held, where
    /// `Latency` work is active ([`coalescing`](crate::coalescing)): 0 to
    /// [`limits::COMPLETION_HOLD_MAX`], 0 for not at all.
    pub completion_hold: Nanos,
    /// Bytes of a later class between two looks at the earlier ones:
    /// [`limits::QUANTUM_BYTES_MIN`] to [`limits::QUANTUM_BYTES_MAX`].
    pub quantum_bytes: u64,
    /// Floor of each class while it waits, in thousandths: 0 to [`limits::FLOOR_PERMILLE_MAX`], and
    /// no more than that in all.
    pub floor_permille: PerClass<u16>,
    /// The quantity and the stretch of a floor.
    pub floor_window: Window,
    /// Threads that a target uses: up to [`limits::TARGET_THREADS_MAX`]. `[ReFlex §4.3]`
    pub target_threads: ThreadBounds,
}

impl Knobs {
    /// The default: everything on.
    #[must_use]
    pub const fn switchyard() -> Self {
        Self {
            lanes: Lanes::PerClass,
            prioritisation: true,
            latency_threads: ThreadPriority::Nice,
            polling: Polling::Adaptive,
            request_steering: request_steering::RequestSteeringRules {
                enabled: true,
                threshold_bytes: limits::STEERING_THRESHOLD_BYTES,
                preference: Preference::None,
            },
            application_steering: application_steering::ApplicationSteeringRules {
                enabled: true,
                period: limits::APPLICATION_STEERING_PERIOD,
                latency_load_max_bytes: limits::LATENCY_LOAD_MAX_BYTES,
                hysteresis: Hysteresis::Settled,
            },
            queue_affinity: true,
            light_hosts: true,
            caravan: Caravans {
                enabled: true,
                beside_latency: CaravanLimits {
                    requests: limits::CARAVAN_REQUESTS,
                    bytes: limits::CARAVAN_BYTES,
                    iovecs: limits::CARAVAN_IOVECS,
                },
                sparse_factor: limits::CARAVAN_SPARSE_FACTOR,
                alone: CaravanLimits {
                    requests: limits::CARAVAN_ALONE_REQUESTS,
                    bytes: limits::CARAVAN_ALONE_BYTES,
                    iovecs: limits::CARAVAN_ALONE_IOVECS,
                },
            },
            sparse_latency_bytes: limits::SPARSE_LATENCY_BYTES,
            doorbell: Mode::ADAPTIVE,
            direct_submitters: limits::DIRECT_SUBMITTERS,
            completion_hold: limits::COMPLETION_HOLD,
            quantum_bytes: limits::QUANTUM_BYTES,
            floor_permille: PerClass::of([0, limits::FLOOR_PERMILLE]),
            floor_window: Window::Time(limits::FLOOR_WINDOW),
            target_threads: ThreadBounds {
                min: 0,
                max: limits::TARGET_THREADS_MAX,
            },
        }
    }

    /// The system that the blk-switch paper compares with: one egress and lane per core for both
    /// classes, no priority, no steering, i10's caravans of 16 requests or 64 KiB and its fixed
    /// doorbell of 50 µs. `[blk-switch §5.1]`
    ///
    /// Idle cores poll adaptively as in [`Knobs::switchyard`], where the kernel's threads sleep: so
    /// a comparison shows the mechanisms and not the cost of waking a core, and flatters no one but
    /// the baseline. `polling=never` is the kernel's behaviour.
    #[must_use]
    pub const fn linux() -> Self {
        let mut knobs = Self::switchyard();
        knobs.lanes = Lanes::Shared;
        knobs.prioritisation = false;
        knobs.latency_threads = ThreadPriority::Default;
        knobs.request_steering.enabled = false;
        knobs.application_steering.enabled = false;
        knobs.application_steering.hysteresis = Hysteresis::Paper;
        knobs.queue_affinity = false;
        knobs.light_hosts = false;
        knobs.caravan.alone = knobs.caravan.beside_latency;
        knobs.caravan.sparse_factor = 1;
        knobs.doorbell = Mode::FIXED;
        knobs.direct_submitters = 0;
        knobs.completion_hold = Nanos::ZERO;
        knobs.floor_permille = PerClass::of([0, 0]);
        knobs
    }

    /// [`Knobs::linux`] without batching: each request is sent when it comes. Idle cores poll
    /// adaptively here, too.
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

    /// The steps of the ablation: [`Knobs::linux`], and each step adds one mechanism of the paper to
    /// those before it. Application steering is Algorithm 2 without additions: no settled rule, no
    /// queue affinity. `[blk-switch §5.4, Fig. 15]`
    #[must_use]
    pub const fn ablation(step: Ablation) -> Self {
        let mut knobs = Self::linux();
        if matches!(step, Ablation::Nothing) {
            return knobs;
        }
        knobs.lanes = Lanes::PerClass;
        knobs.prioritisation = true;
        knobs.latency_threads = ThreadPriority::Nice;
        knobs.request_steering.enabled = !matches!(step, Ablation::Prioritisation);
        knobs.application_steering.enabled = matches!(step, Ablation::ApplicationSteering);
        knobs
    }

    /// The paper's blk-switch: the last step of the [ablation](Knobs::ablation) on threads as the
    /// kernel's, which sleep when idle, and of which a target uses as many as it has cores. One
    /// dataplane thread serves the classes of a core in strict order, where the paper has a kernel
    /// thread for each egress. `[blk-switch §3, §4]`
    #[must_use]
    pub const fn blk_switch_paper() -> Self {
        let mut knobs = Self::ablation(Ablation::ApplicationSteering);
        knobs.polling = Polling::Never;
        knobs.target_threads.min = limits::TARGET_THREADS_MAX;
        knobs
    }

    /// The scheduler's part.
    #[must_use]
    pub const fn service(&self) -> class_scheduler::ClassSchedulerRules {
        class_scheduler::ClassSchedulerRules {
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

    /// Returns the mode of a target's doorbells, which hold answers.
    ///
    /// i10's timer is the host's alone: its target makes a caravan of what is done whenever its
    /// worker runs. `[i10 §2.2, §2.4]`
    #[must_use]
    pub const fn answer_doorbell(&self) -> Mode {
        match self.doorbell {
            Mode::Fixed { .. } => Mode::Immediate,
            mode => mode,
        }
    }

    /// Returns true if dataplane threads ask for nice −20.
    #[must_use]
    pub const fn raises_dataplane(&self) -> bool {
        self.prioritisation && matches!(self.latency_threads, ThreadPriority::Nice)
    }

    /// Checks that every knob is within its range.
    ///
    /// # Errors
    /// The first knob that is not, with what is valid.
    pub fn validate(&self) -> Result<(), KnobError> {
        for knob in Knob::ALL {
            if let Some(value) = knob.get(self) {
                knob.check(value)?;
            }
        }
        let promised: u32 = self
            .floor_permille
            .iter()
            .map(|(_, &share)| u32::from(share))
            .sum();
        if promised > u32::from(limits::FLOOR_PERMILLE_MAX) {
            return Err(KnobError::TooMuchPromised { promised });
        }
        let ThreadBounds { min, max } = self.target_threads;
        if min > max {
            return Err(KnobError::BoundsCross { min, max });
        }
        Ok(())
    }
}

impl Default for Knobs {
    fn default() -> Self {
        Self::switchyard()
    }
}
