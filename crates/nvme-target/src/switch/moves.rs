//! State of application steering `[blk-switch §3.3]` and thread scaling `[ReFlex §4.3]` on a core.

use crate::limits::MOVE_PATIENCE;
use base::{Nanos, SlabKey, Time};
use switch::PerClass;
use switch::application_steering::SteeredThread;
use switch::thread_scaling::{ThreadLoad, ThreadRange, ThreadScaling};

/// State of application steering on a core.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// Queues that are to move, each with the end of its wait for a quiet moment.
    pub(crate) leaving: Vec<(SlabKey, Time)>,
    /// Reused memory for the loads of all cores, their recent loads, the gathered load by home
    /// thread, and the queues that may move.
    pub(crate) loads: Vec<PerClass<u64>>,
    pub(crate) recent: Vec<PerClass<u64>>,
    pub(crate) gathered: Vec<u64>,
    pub(crate) queues: Vec<SteeredThread>,
}

impl Steering {
    /// Returns the earliest time at which a queue stops waiting for a quiet moment.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.leaving.iter().map(|&(_, until)| until).min()
    }
}

/// Index of the thread that accepts connections and decides for all threads.
pub(crate) const FIRST: usize = 0;

/// State of thread scaling on a thread.
#[derive(Debug)]
pub(crate) struct Scaling {
    /// The scaling rule; only the first thread has it.
    pub(crate) rule: Option<ThreadScaling>,
    pub(crate) range: ThreadRange,
    /// Reused memory for the work of all threads, and for the queues that may move.
    pub(crate) threads: Vec<ThreadLoad>,
    pub(crate) queues: Vec<(SlabKey, u64)>,
    /// Time at which an unused thread retries to hand its queues on, and how long each queue then
    /// waits for a quiet moment.
    pub(crate) hands_on_at: Time,
    pub(crate) patience: Nanos,
}

impl Scaling {
    pub(crate) fn new(thread: usize, range: ThreadRange) -> Self {
        Self {
            rule: (thread == FIRST).then(|| ThreadScaling::new(range)),
            range,
            threads: Vec::new(),
            queues: Vec::new(),
            hands_on_at: Time::ZERO,
            patience: MOVE_PATIENCE,
        }
    }
}
