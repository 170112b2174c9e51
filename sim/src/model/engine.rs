//! The dataplane loop of a core, on the host or on the target: a turn of the model's own, in which
//! the production [`ClassScheduler`] decides the order, and the production doorbells the time of
//! each send. A production host asks that scheduler for what it receives alone; its sends go in the
//! order of classes, a quantum of the later ones in a turn, without floors.

mod turns;

use super::app::Way;
use super::lane::Side;
use std::collections::VecDeque;
use switch::{ClassScheduler, PerClass};

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) side: Side,
    pub(super) thread: usize,
    /// The way by which requests come to it, on the host.
    pub(super) way: Way,
    pub(super) scheduler: ClassScheduler,
    /// Requests that applications handed in.
    pub(super) ingress: PerClass<VecDeque<usize>>,
    ingress_bytes: PerClass<u64>,
    /// Ends with a doorbell that rang.
    pub(super) sends: PerClass<VecDeque<usize>>,
    /// Ends that have received something.
    pub(super) receives: PerClass<VecDeque<usize>>,
    receive_bytes: PerClass<u64>,
    /// Quanta of later classes begun so far, those of floors not counted.
    quanta: u64,
    /// The most of them that anything of the first class has waited for.
    pub(super) quanta_waited_max: u64,
    /// The loop's place in its turn, class by class.
    turn: PerClass<Turn>,
    /// Requests that were received together; kept for its memory.
    batch: Vec<usize>,
    /// The send under way: packets of its caravan that the kernel has not taken yet.
    pub(super) sending: VecDeque<usize>,
    /// Bytes of the whole of it.
    sending_bytes: u64,
}

/// A turn of the loop: what has come is gathered, then each end that rang sends once. Between any
/// two steps of it the scheduler may grant another class.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Received so far.
    bytes: u64,
    /// Something was received, or taken from the ingress.
    gathered: bool,
    /// Gathered enough: so many sends go first now.
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
