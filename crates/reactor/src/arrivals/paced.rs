//! Work on sockets of which a turn does one piece: sends where there is a quantum, and closes. A
//! piece takes some 20 µs, for which whatever arrives meanwhile waits
//! (docs/design/decisions/0019-light-hosts.md).

use super::line::ArrivalQueue;
use super::{Interest, Kernel};
use crate::limits::{BOUNDED_SEND_BYTES, BOUNDED_SENDS_MAX, CLOSES_WAITING_MAX};
use base::SlabKey;
use std::collections::VecDeque;

/// Sockets on which a send goes on, and those that are to be closed.
#[derive(Debug)]
pub(super) struct Paced {
    /// Sockets with a quantum on which a send goes on, in order.
    pub(super) sends: VecDeque<SlabKey>,
    /// Sockets that are to be closed, in order.
    closes: VecDeque<SlabKey>,
    /// The one of them for which it is time.
    close_due: Option<SlabKey>,
    /// The last piece was a close: the next one is for others, if they have any.
    closed_last: bool,
    /// Sends since it was the turn of a receive.
    sent: u32,
    /// The last turn passed by this work, and by receives with a quantum.
    passed: bool,
}

impl Paced {
    /// Makes it for a core with at most `sockets` sockets.
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

    /// Returns true if there is nothing to do. The ring tells of none of it.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.closes.is_empty()
    }

    /// A send goes on in its turn.
    pub(super) fn send(&mut self, key: SlabKey) {
        self.sends.push_back(key);
    }

    /// Nothing is sent on a socket any more.
    pub(super) fn ends(&mut self, key: SlabKey) {
        self.sends.retain(|&other| other != key);
    }

    /// A socket is to be closed in its turn.
    pub(super) fn close(&mut self, key: SlabKey) {
        self.closes.push_back(key);
    }

    /// Returns the next socket that is to be closed now: the one for which it is time, and others
    /// while more than [`CLOSES_WAITING_MAX`] wait.
    #[inline]
    pub(super) fn take_close(&mut self) -> Option<SlabKey> {
        let due = self.close_due.take();
        if due.is_none() && self.closes.len() > CLOSES_WAITING_MAX {
            return self.closes.pop_front();
        }
        due
    }

    /// Returns true if a turn that has `brought` something from sockets without a quantum passes by
    /// this work, and by the receives with a quantum that are waiting or not: what came is answered
    /// first. It does not do so twice in a row, or others could keep them out.
    pub(super) fn passes(&mut self, brought: bool, receives_wait: bool) -> bool {
        let any = receives_wait || !self.is_empty();
        self.passed = brought && any && !self.passed;
        self.passed
    }

    /// Returns true if the last turn passed by.
    pub(super) const fn was_passed(&self) -> bool {
        self.passed
    }

    /// Does one piece: lets the next socket be closed, or sends on the next one with a quantum.
    /// Returns false if there was none, or if it is the turn of a receive, where a socket with a
    /// quantum waits for one.
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
        // The quantum may be gone by now.
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
