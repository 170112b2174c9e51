//! The line of sockets with arrivals that wait for their turn.

use base::SlabKey;
use std::collections::VecDeque;

/// The queues of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrivalQueue {
    /// Sockets with urgent arrivals.
    Urgent,
    /// Sockets without a quantum.
    Others,
    /// Sockets with a quantum, one of which is served per turn.
    Bounded,
}

/// Sockets with arrivals that a turn did not serve, in order of arrival.
#[derive(Debug)]
pub(super) struct Line {
    /// Sockets with urgent arrivals.
    pub(super) urgent: VecDeque<SlabKey>,
    pub(super) others: VecDeque<SlabKey>,
    pub(super) bounded: VecDeque<SlabKey>,
}

impl Line {
    /// Creates a line that holds all `sockets` of a core without allocation.
    pub(super) fn with_capacity(sockets: usize) -> Self {
        Self {
            urgent: VecDeque::with_capacity(sockets),
            others: VecDeque::with_capacity(sockets),
            bounded: VecDeque::with_capacity(sockets),
        }
    }

    pub(super) fn of(&mut self, queue: ArrivalQueue) -> &mut VecDeque<SlabKey> {
        match queue {
            ArrivalQueue::Urgent => &mut self.urgent,
            ArrivalQueue::Others => &mut self.others,
            ArrivalQueue::Bounded => &mut self.bounded,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unbounded_is_empty() && self.bounded.is_empty()
    }

    /// Returns true if no socket waits only because a buffer was missing.
    pub(super) fn unbounded_is_empty(&self) -> bool {
        self.urgent.is_empty() && self.others.is_empty()
    }

    /// Removes a socket.
    pub(super) fn remove(&mut self, key: SlabKey) {
        for queue in [&mut self.urgent, &mut self.others, &mut self.bounded] {
            queue.retain(|&other| other != key);
        }
    }
}
