//! Paced socket work, one piece per turn: sends with a quantum, and closes. A piece takes about 20
//! µs, which delays whatever arrives meanwhile (docs/design/decisions/0019-light-hosts.md).

use super::line::ArrivalQueue;
use super::{Interest, Kernel};
use crate::limits::{BOUNDED_SEND_BYTES, BOUNDED_SENDS_MAX, CLOSES_WAITING_MAX};
use base::SlabKey;
use std::collections::VecDeque;

/// Sockets with a paced send, and sockets to be closed.
#[derive(Debug)]
pub(super) struct Paced {
    /// Sockets with a quantum whose send continues, in order.
    pub(super) sends: VecDeque<SlabKey>,
    /// Sockets to be closed, in order.
    closes: VecDeque<SlabKey>,
    /// The socket whose close is due.
    close_due: Option<SlabKey>,
    /// The last piece was a close: the next one is a send, if there is any.
    closed_last: bool,
    /// Sends since the last turn of a receive.
    sent: u32,
    /// The last turn skipped this work and receives with a quantum.
    passed: bool,
}

impl Paced {
    /// Creates the state for a core with at most `sockets` sockets.
    pub(super) fn with_capacity(sockets: usize) -> Self {
        Self {
            sends: VecDeque::with_capacity(sockets),
            closes: VecDeque::with_capacity(sockets),
            close_due: None,
            closed_last: false,
            sent: 0,
            passed: false,
        }
    }

    /// Returns true if there is no paced work. The ring reports none of it.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.closes.is_empty()
    }

    /// Queues a send to continue in its turn.
    pub(super) fn send(&mut self, key: SlabKey) {
        self.sends.push_back(key);
    }

    /// Removes the sends of a socket.
    pub(super) fn ends(&mut self, key: SlabKey) {
        self.sends.retain(|&other| other != key);
    }

    /// Queues a socket to be closed in its turn.
    pub(super) fn close(&mut self, key: SlabKey) {
        self.closes.push_back(key);
    }

    /// Returns the next socket to close now: the one that is due, and further ones while more than
    /// [`CLOSES_WAITING_MAX`] wait.
    #[inline]
    pub(super) fn take_close(&mut self) -> Option<SlabKey> {
        let due = self.close_due.take();
        if due.is_none() && self.closes.len() > CLOSES_WAITING_MAX {
            return self.closes.pop_front();
        }
        due
    }

    /// Returns true if this turn skips paced work and any waiting receives with a quantum, because
    /// sockets without a quantum have `brought` data, which is processed first. Never twice in a
    /// row, because those sockets could otherwise starve the rest.
    pub(super) fn passes(&mut self, brought: bool, receives_wait: bool) -> bool {
        let any = receives_wait || !self.is_empty();
        self.passed = brought && any && !self.passed;
        self.passed
    }

    /// Returns true if the last turn skipped paced work.
    pub(super) const fn was_passed(&self) -> bool {
        self.passed
    }

    /// Does one piece: makes the next close due, or sends on the next socket with a quantum.
    /// Returns false if there was none, or if it is the turn of a waiting receive with a quantum.
    pub(super) fn go_on(&mut self, receives_wait: bool, kernel: &mut impl Kernel) -> bool {
        if !std::mem::take(&mut self.closed_last) {
            self.close_due = self.closes.pop_front();
            self.closed_last = self.close_due.is_some();
            if self.closed_last {
                return true;
            }
        }
        if receives_wait && self.sent >= BOUNDED_SENDS_MAX {
            self.sent = 0;
            return false;
        }
        let Some(key) = self.sends.pop_front() else {
            return false;
        };
        self.sent = self.sent.saturating_add(1);
        // The quantum may have been removed meanwhile.
        let most = match kernel.interest(key).map(Interest::queue) {
            Some(ArrivalQueue::Bounded) => BOUNDED_SEND_BYTES,
            _ => usize::MAX,
        };
        if kernel.send(key, most) {
            self.sends.push_back(key);
        }
        true
    }
}
