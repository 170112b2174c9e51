//! State of application steering on a core. `[blk-switch §3.3]`

use base::{SlabKey, Time};
use switch::PerClass;
use switch::application_steering::SteeredThread;

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
