//! Cores and the kernel's scheduler: the running thread, its time, and the cost of wake-ups.
//!
//! A thread works in steps: a step is chosen when the thread gets the core, costs time, and takes
//! effect at its end. Threads share a core by weighted virtual run time, a slice at a time. A woken
//! thread with less run time than the running thread waits at most for the kernel's minimum slice
//! and for the end of a system call. Network interrupts run before every thread and extend the step
//! that they interrupt.

mod schedule;

use super::app::Way;
use super::caches::Caches;
use super::costs::Noise;
use super::random::Random;
use reactor::{IdlePolicy, PollPolicy};
use switch::limits::CORES_MAX;
use switch::{Knobs, LatencyWatch};

/// Time for which an idle host core is then kept awake by a thread that yields to all other
/// threads, like the production idle spinner.
const KEPT_NS: u64 = 200_000;

/// After an interrupt a core checks for work once more before it sleeps.
const SETTLE_NS: u64 = 1_000;

/// The kernel's weight of a thread of nice 0.
pub(super) const WEIGHT_NORMAL: u64 = 1_024;
/// The kernel's weight of a thread of nice −20.
pub(super) const WEIGHT_NICEST: u64 = 88_761;

const _: () = assert!(CORES_MAX < 1 << 16);

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An application.
    App(usize),
    /// A dataplane loop.
    Engine(usize),
}

/// A step of a thread on its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadStep {
    /// An application processes completions and issues new requests.
    App {
        /// Completions.
        completions: usize,
        /// How the new requests reach the dataplane.
        way: Way,
    },
    /// A dataplane loop takes requests of one class from its ingress.
    Take {
        /// Their number.
        count: usize,
        /// Index of the class.
        class: usize,
    },
    /// It sends a packet.
    Send {
        /// Index of the packet.
        packet: usize,
        /// The packet is the last of the send.
        last: bool,
    },
    /// It returns from a send whose packet leaves independently: on loopback the receiver has it
    /// before the sender returns.
    Return,
    /// It receives packets of a lane.
    Receive {
        /// Index of the lane's end.
        end: usize,
        /// Number of packets.
        packets: usize,
    },
    /// It polls for work.
    Poll,
}

impl ThreadStep {
    /// Returns true if it is mostly a system call: fair threads do not preempt each other there.
    const fn is_call(self) -> bool {
        matches!(
            self,
            Self::Send { .. } | Self::Return | Self::Receive { .. }
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    Asleep,
    Ready,
    Running,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) role: Role,
    pub(super) core: usize,
    pub(super) weight: u64,
    pub(super) state: ThreadState,
    vruntime: u64,
    /// It slept before it became ready.
    woken: bool,
    /// Time from which its core knows that it is ready.
    ready_at: u64,
    /// An interrupted step and its remaining time.
    suspended: Option<(ThreadStep, u64)>,
    /// Time at which it yielded; `None` once it has its core back.
    yielded: Option<u64>,
    /// Last time at which it ran out of work.
    slept_at: u64,
    /// Time until which it polls for work, or has yielded and is about to poll; 0 if it sleeps.
    polls_until: u64,
}

impl Thread {
    pub(super) const fn new(role: Role, core: usize) -> Self {
        Self {
            role,
            core,
            weight: WEIGHT_NORMAL,
            state: ThreadState::Asleep,
            vruntime: 0,
            woken: false,
            ready_at: 0,
            suspended: None,
            yielded: None,
            slept_at: 0,
            polls_until: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Core {
    current: Option<usize>,
    step: ThreadStep,
    step_end: u64,
    /// Generation of the step: events of an earlier step are stale.
    generation: u32,
    ready: Vec<usize>,
    last: Option<usize>,
    on_cpu_since: u64,
    /// Time up to which the current thread's run time is accounted.
    accounted: u64,
    vruntime: u64,
    /// Idle, and waking up for a thread.
    waking: bool,
    idle_since: u64,
    /// Time until which it polls while idle.
    poll_until: u64,
    /// Time until which it does not sleep deeply while idle.
    awake_until: u64,
    /// Time until which an idle spinner runs on it while idle.
    kept_until: u64,
    softirq_until: u64,
    /// Costs of effects, charged to the next step.
    pub(super) debt: u64,
    /// Next time of each kind of noise.
    noise_at: Vec<u64>,
    /// Earliest of these times.
    next_noise_at: u64,
    idle_ns: u64,
    /// Idle policy of its dataplane loop.
    pub(super) idle: IdlePolicy,
    /// It is kept awake for a while when that loop sleeps.
    pub(super) keeps: bool,
    /// `Latency` activity seen by the dataplane loops of each side on this core.
    pub(super) latency: [LatencyWatch; 2],
    pub(super) caches: Caches,
}

impl Core {
    /// A sleeping core with these kinds of noise.
    pub(super) fn new(noise: &[Noise], knobs: &Knobs, random: &mut Random) -> Self {
        let first = noise
            .iter()
            .map(|noise| random.exponential(noise.period_ns));
        let noise_at: Vec<_> = first.collect();
        Self {
            current: None,
            step: ThreadStep::Poll,
            step_end: 0,
            generation: 0,
            ready: Vec::new(),
            last: None,
            on_cpu_since: 0,
            accounted: 0,
            vruntime: 0,
            waking: false,
            idle_since: 0,
            poll_until: 0,
            awake_until: 0,
            kept_until: 0,
            softirq_until: 0,
            debt: 0,
            next_noise_at: noise_at.iter().copied().min().unwrap_or(u64::MAX),
            noise_at,
            idle_ns: 0,
            idle: IdlePolicy::new(PollPolicy::Never),
            keeps: false,
            latency: [LatencyWatch::new(knobs.sparse_latency_bytes); 2],
            caches: Caches::default(),
        }
    }

    /// Returns its idle time so far.
    pub(super) fn idle_ns(&self, now: u64) -> u64 {
        self.idle_ns + self.idle_stretch(now)
    }

    fn idle_stretch(&self, now: u64) -> u64 {
        if self.current.is_some() {
            return 0;
        }
        now.saturating_sub(self.idle_since.max(self.poll_until.min(now)))
    }
}
