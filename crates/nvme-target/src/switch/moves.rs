//! State of application steering `[blk-switch §3.3]` and thread scaling `[ReFlex §4.3]` on a core.

use crate::limits::MOVE_PATIENCE;
use base::{Nanos, SlabKey, Time};
use switch::PerClass;
use switch::application_steering::SteeredThread;
use switch::thread_scaling::{ThreadLoad, ThreadRange, ThreadScaling};

/// State of application steering on a core.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// Queues that are to move, and until when each waits for a quiet moment.
    pub(crate) leaving: Vec<(SlabKey, Time)>,
    /// Room for the loads of all cores, for what of them is recent, for what gathers here by its
    /// home, and for what may move.
    pub(crate) loads: Vec<PerClass<u64>>,
    pub(crate) recent: Vec<PerClass<u64>>,
    pub(crate) gathered: Vec<u64>,
    pub(crate) queues: Vec<SteeredThread>,
}

impl Steering {
    /// Returns the time at which the first queue gives up to wait for a quiet moment.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.leaving.iter().map(|&(_, until)| until).min()
    }
}

/// Index of the thread that accepts connections and decides for the others.
pub(crate) const FIRST: usize = 0;

/// State of thread scaling on a thread.
#[derive(Debug)]
pub(crate) struct Scaling {
    /// The first thread's alone.
    pub(crate) rule: Option<ThreadScaling>,
    pub(crate) range: ThreadRange,
    /// Room for what all threads did, and for what may move.
    pub(crate) threads: Vec<ThreadLoad>,
    pub(crate) queues: Vec<(SlabKey, u64)>,
    /// Time at which a thread that is not in use tries again to hand its queues on, and the patience
    /// of each of them with a quiet moment.
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
