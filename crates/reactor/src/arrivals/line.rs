//! The line of sockets on which something arrived, and that wait for their turn.

use base::SlabKey;
use std::collections::VecDeque;

/// The queues of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrivalQueue {
    /// Sockets with arrivals that go before those of others.
    Urgent,
    /// Sockets without a quantum.
    Others,
    /// Sockets with a quantum, of which a turn serves one.
    Bounded,
}

/// Sockets on which something arrived, and that a turn did not serve, in order of arrival.
#[derive(Debug)]
pub(super) struct Line {
    /// Sockets with arrivals that go before those of others.
    pub(super) urgent: VecDeque<SlabKey>,
    pub(super) others: VecDeque<SlabKey>,
    pub(super) bounded: VecDeque<SlabKey>,
}

impl Line {
    /// A line that a core's `sockets` stand in without an allocation.
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

    /// Returns true if no socket waits that could have been served on an earlier turn, had there
    /// been a buffer.
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
