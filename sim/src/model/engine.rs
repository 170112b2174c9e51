//! The dataplane loop of a core, on the host or on the target. The turn is the model's own; the
//! production [`ClassScheduler`] decides the order, and the production doorbells decide the time of
//! each send. A production host uses that scheduler only to receive; it sends in class order, with
//! one quantum of the lower classes per turn and no floors.

mod turns;

use super::app::Way;
use super::lane::Side;
use std::collections::VecDeque;
use switch::{ClassScheduler, PerClass};

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) side: Side,
    pub(super) thread: usize,
    /// How requests reach it, on the host.
    pub(super) way: Way,
    pub(super) scheduler: ClassScheduler,
    /// Requests submitted by applications.
    pub(super) ingress: PerClass<VecDeque<usize>>,
    ingress_bytes: PerClass<u64>,
    /// Ends whose doorbell rang.
    pub(super) sends: PerClass<VecDeque<usize>>,
    /// Ends with received data.
    pub(super) receives: PerClass<VecDeque<usize>>,
    receive_bytes: PerClass<u64>,
    /// Quanta of lower classes begun so far, without those of floors.
    quanta: u64,
    /// Maximum number of such quanta that a request of the first class has waited for.
    pub(super) quanta_waited_max: u64,
    /// Position of the loop in its turn, per class.
    turn: PerClass<Turn>,
    /// Requests received together; kept to reuse its memory.
    batch: Vec<usize>,
    /// The current send: packets of its caravan that the kernel has not taken yet.
    pub(super) sending: VecDeque<usize>,
    /// Total bytes of the current send.
    sending_bytes: u64,
}

/// A turn of the loop: arrived work is gathered, then each end whose doorbell rang sends once.
/// Between any two steps of it the scheduler may grant another class.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Bytes received in this turn.
    bytes: u64,
    /// Data was received, or requests were taken from the ingress.
    gathered: bool,
    /// Number of sends due before more is gathered.
    sends: usize,
}

impl Engine {
    pub(super) fn new(side: Side, thread: usize, way: Way, scheduler: ClassScheduler) -> Self {
        Self {
            side,
            thread,
            way,
            scheduler,
            ingress: PerClass::default(),
            ingress_bytes: PerClass::default(),
            sends: PerClass::default(),
            receives: PerClass::default(),
            receive_bytes: PerClass::default(),
            quanta: 0,
            quanta_waited_max: 0,
            turn: PerClass::default(),
            batch: Vec::new(),
            sending: VecDeque::new(),
            sending_bytes: 0,
        }
    }

    fn served_first(&mut self, quanta_before: u64) {
        let waited = self.quanta - quanta_before;
        self.quanta_waited_max = self.quanta_waited_max.max(waited);
    }
}
