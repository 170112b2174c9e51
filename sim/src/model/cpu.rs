//! Cores, and the kernel's scheduler on them: the thread that runs, its time, and the cost of
//! waking.
//!
//! A thread works in steps: what it is about to do is decided when it gets the core, costs time,
//! and takes effect when that time is over. Threads share a core by weighted virtual run time, a
//! slice at a time. One that was woken and has had less than the one that runs waits no longer than
//! the kernel lets that one keep its core, and for the end of a call into the kernel. What the network interrupts for goes
//! before every thread and stretches the step that it interrupts.

mod schedule;

use super::app::Way;
use super::caches::Caches;
use super::costs::Noise;
use super::random::Random;
use reactor::{IdlePolicy, PollPolicy};
use switch::limits::CORES_MAX;
use switch::{Knobs, LatencyWatch};

/// Time for which a host's core is kept awake after that, by a thread that yields to all others: as
/// long as by the production idle spinner.
const KEPT_NS: u64 = 200_000;

/// After an interrupt a core looks for work once more before it sleeps.
const SETTLE_NS: u64 = 1_000;

/// The weight of a thread of nice 0, and of nice −20, as the kernel has them.
pub(super) const WEIGHT_NORMAL: u64 = 1_024;
/// See [`WEIGHT_NORMAL`].
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
    /// An application takes so many completions and makes new requests.
    App {
        /// Completions.
        completions: usize,
        /// The way of the new requests.
        way: Way,
    },
    /// A dataplane loop takes requests of one class from its ingress.
    Take {
        /// Their number.
        count: usize,
        /// The class's index.
        class: usize,
    },
    /// It sends this packet.
    Send {
        /// Which.
        packet: usize,
        /// The send ends with it.
        last: bool,
    },
    /// It returns from a send, the packet of which leaves on its own: on the loopback the receiver
    /// has it before the sender is done.
    Return,
    /// It receives what a lane has.
    Receive {
        /// Which end of which lane.
        end: usize,
        /// So many packets.
        packets: usize,
    },
    /// It looks for work again and again.
    Poll,
}

impl ThreadStep {
    /// Returns true if it is a call into the kernel, mostly: fair threads do not interrupt each
    /// other there.
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
    /// Its core does not know before then that it is ready.
    ready_at: u64,
    /// A step that was interrupted, and what is left of it.
    suspended: Option<(ThreadStep, u64)>,
    /// The time at which it yielded, if it has not got its core back.
    yielded: Option<u64>,
    /// The last time at which it had nothing to do any more.
    slept_at: u64,
    /// Until then it looks for work, or has yielded and is about to; 0 if it sleeps.
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
    /// Of the step: an event for an earlier one is none.
    generation: u32,
    ready: Vec<usize>,
    last: Option<usize>,
    on_cpu_since: u64,
    /// Until when the current thread's run time is accounted.
    accounted: u64,
    vruntime: u64,
    /// Idle, and on the way to the first thread.
    waking: bool,
    idle_since: u64,
    /// While idle it polls until then.
    poll_until: u64,
    /// While idle it does not sleep deeply until then.
    awake_until: u64,
    /// While idle an idle spinner spins until then.
    kept_until: u64,
    softirq_until: u64,
    /// Costs of effects, paid with the next step.
    pub(super) debt: u64,
    /// The next time at which each kind of noise takes the core.
    noise_at: Vec<u64>,
    /// The earliest of these.
    next_noise_at: u64,
    idle_ns: u64,
    /// The rule by which it polls while it is idle: that of the dataplane loop on it.
    pub(super) idle: IdlePolicy,
    /// It is kept awake for a while when that loop sleeps.
    pub(super) keeps: bool,
    /// The `Latency` activity that the dataplane loops of each side see here.
    pub(super) latency: [LatencyWatch; 2],
    pub(super) caches: Caches,
}

impl Core {
    /// A core that sleeps, and that these kinds of noise will take.
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

    /// Its idle time so far.
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
