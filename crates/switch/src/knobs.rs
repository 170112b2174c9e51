//! The knobs: all run-time settings of the switch, as one value.
//!
//! A [`Knobs`] starts as a [`Preset`] and is changed through its fields, or as text through the
//! table of all knobs ([`Knob`]); [`Knobs::validate`] returns its first error. Owned by the control
//! plane, which passes a copy to every core. Each mechanism takes its part and can be reconfigured
//! while it runs ([`Doorbell`](crate::Doorbell), [`RequestSteering`](crate::RequestSteering),
//! [`ApplicationSteering`](crate::ApplicationSteering), [`ClassScheduler`](crate::ClassScheduler)).
//! The number of lanes ([`Lanes`]) applies to new connections; everything else applies at once.
//! Invariant: never reaches a core unvalidated.

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
    /// One per class, each with its own egress. `[blk-switch §3.1]`
    PerClass,
    /// One for all classes, in order of arrival. `[i10 §2.2]`
    Shared,
}

/// The behaviour of an idle core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polling {
    /// Polls while work is likely, then sleeps.
    Adaptive,
    /// Always polls.
    Always,
    /// Sleeps at once.
    Never,
}

/// The scheduling priority of threads that do `Latency` work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadPriority {
    /// Unchanged.
    Default,
    /// Nice −20: "SPDK+priority" in the figures. `[blk-switch §2.2]`
    Nice,
}

/// Limits of caravans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caravans {
    /// Several requests may share a send; otherwise each one is sent separately.
    pub enabled: bool,
    /// Limits while `Latency` work is active, on the core or in the lanes to the target.
    pub beside_latency: CaravanLimits,
    /// Factor on those limits while `Latency` requests are sparse: 1 to
    /// [`limits::CARAVAN_SPARSE_FACTOR_MAX`].
    pub sparse_factor: u32,
    /// Limits otherwise.
    pub alone: CaravanLimits,
}

impl Caravans {
    /// Returns the limits of a caravan for this `Latency` activity.
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
    /// Rules of request steering: the core through which a request leaves. `[blk-switch §3.2]`
    pub request_steering: request_steering::RequestSteeringRules,
    /// Rules of application steering: the core on which a thread runs. `[blk-switch §3.3]`
    pub application_steering: application_steering::ApplicationSteeringRules,
    /// True: a target serves queues on their arrival cores while classes contend
    /// ([`affinity`](crate::affinity)); part of its application steering.
    pub queue_affinity: bool,
    /// True: a turn of a target's core receives at most a caravan from heavy hosts while light
    /// hosts are active ([`light_hosts`](crate::light_hosts)).
    pub light_hosts: bool,
    /// Limits of caravans. `[i10 §2.3]`
    pub caravan: Caravans,
    /// Average bytes of later classes sent between two `Latency` requests from which the latter are
    /// sparse ([`latency_activity`](crate::latency_activity)): [`limits::SPARSE_LATENCY_BYTES_MIN`]
    /// to [`limits::SPARSE_LATENCY_BYTES_MAX`].
    pub sparse_latency_bytes: u64,
    /// Mode of the doorbell. `[i10 §2.4]`
    pub doorbell: Mode,
    /// Maximum number of a core's `Latency` submitters that send for themselves while no
    /// `Throughput` work is outstanding there: 0 to [`limits::DIRECT_SUBMITTERS_MAX`].
    pub direct_submitters: u32,
    /// Maximum time to hold the notification of a completion that may wait, while `Latency` work is
    /// active ([`coalescing`](crate::coalescing)): 0 to [`limits::COMPLETION_HOLD_MAX`], 0 for
    /// none.
    pub completion_hold: Nanos,
    /// Bytes of a later class between two checks of the earlier ones: [`limits::QUANTUM_BYTES_MIN`]
    /// to [`limits::QUANTUM_BYTES_MAX`].
    pub quantum_bytes: u64,
    /// Floor of each class while it waits, in thousandths: 0 to [`limits::FLOOR_PERMILLE_MAX`],
    /// which also bounds the sum.
    pub floor_permille: PerClass<u16>,
    /// Unit and window of the floors.
    pub floor_window: Window,
    /// Number of threads of a target: up to [`limits::TARGET_THREADS_MAX`]. `[ReFlex §4.3]`
    pub target_threads: ThreadBounds,
}

impl Knobs {
    /// The default: every mechanism is on.
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

    /// The baseline of the blk-switch paper: one egress and lane per core for both classes, no
    /// priority, no steering, i10's caravans of 16 requests or 64 KiB, and its fixed doorbell of 50
    /// µs. `[blk-switch §5.1]`
    ///
    /// Idle cores poll adaptively as in [`Knobs::switchyard`], whereas the kernel's threads sleep
    /// (`polling=never`). A comparison thus shows the mechanisms rather than the cost of waking a
    /// core, in favour of the baseline.
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

    /// [`Knobs::linux`] without batching: each request is sent on arrival. Idle cores also poll
    /// adaptively.
    #[must_use]
    pub const fn nvme_tcp() -> Self {
        let mut knobs = Self::linux();
        knobs.caravan.enabled = false;
        knobs.doorbell = Mode::Immediate;
        knobs
    }

    /// Every thread polls and sends at once, as in a polling stack; nothing is held, ordered or
    /// steered.
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

    /// The steps of the ablation: [`Knobs::linux`], plus one mechanism of the paper per step.
    /// Application steering is Algorithm 2 without additions: neither the settled rule nor queue
    /// affinity. `[blk-switch §5.4, Fig. 15]`
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

    /// The paper's blk-switch: the last step of the [ablation](Knobs::ablation), with threads that
    /// sleep when idle, as the kernel's do; a target uses one per core. One dataplane thread serves
    /// the classes of a core in strict order, whereas the paper has a kernel thread for each
    /// egress. `[blk-switch §3, §4]`
    #[must_use]
    pub const fn blk_switch_paper() -> Self {
        let mut knobs = Self::ablation(Ablation::ApplicationSteering);
        knobs.polling = Polling::Never;
        knobs.target_threads.min = limits::TARGET_THREADS_MAX;
        knobs
    }

    /// Returns the rules of the class scheduler.
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

    /// Returns the mode of a target's doorbells, which hold responses.
    ///
    /// i10's timer exists on the host only: its target sends everything completed in one caravan
    /// whenever its worker runs. `[i10 §2.2, §2.4]`
    #[must_use]
    pub const fn answer_doorbell(&self) -> Mode {
        match self.doorbell {
            Mode::Fixed { .. } => Mode::Immediate,
            mode => mode,
        }
    }

    /// Returns true if dataplane threads run at nice −20.
    #[must_use]
    pub const fn raises_dataplane(&self) -> bool {
        self.prioritisation && matches!(self.latency_threads, ThreadPriority::Nice)
    }

    /// Checks that every knob is within its range.
    ///
    /// # Errors
    /// The first knob out of range, with its valid range.
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
