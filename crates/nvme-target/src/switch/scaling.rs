//! State of thread scaling on a thread. `[ReFlex §4.3]`

use crate::limits::MOVE_PATIENCE;
use base::{Nanos, SlabKey, Time};
use switch::thread_scaling::{ThreadLoad, ThreadRange, ThreadScaling};

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
