//! The hot sockets: those that are read directly on every turn, because data came lately.

use super::socket::Socket;
use super::{CROWD_WINDOW, HOT_WINDOW, UringDriver};
use crate::limits::HOT_SOCKETS_MAX;
use base::SlabKey;
use std::collections::VecDeque;
use switch::PerClass;
use switch::scheduler::Order;

/// Sockets on which something arrived, and that a turn had no receive buffer for, in order of
/// arrival.
#[derive(Debug)]
pub(super) struct Line {
    /// Those whose arrivals go before those of others.
    pub(super) urgent: VecDeque<SlabKey>,
    pub(super) others: VecDeque<SlabKey>,
}

impl Line {
    /// A line that a core's `sockets` stand in without an allocation.
    pub(super) fn with_capacity(sockets: usize) -> Self {
        Self {
            urgent: VecDeque::with_capacity(sockets),
            others: VecDeque::with_capacity(sockets),
        }
    }

    pub(super) fn of(&mut self, urgent: bool) -> &mut VecDeque<SlabKey> {
        if urgent {
            &mut self.urgent
        } else {
            &mut self.others
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.others.is_empty()
    }

    /// Removes a socket that closes.
    pub(super) fn remove(&mut self, key: SlabKey) {
        self.urgent.retain(|&other| other != key);
        self.others.retain(|&other| other != key);
    }
}

impl UringDriver {
    /// Receives what has arrived: first from the sockets that wait in line, then from the hot ones,
    /// of which the silent cool down.
    pub(super) fn receive_arrived(&mut self) {
        if self.prioritises() {
            self.receive_in_order();
        } else {
            // Nothing is left for a later look, which would never come.
            self.bulk_arrived = false;
            self.receive_line(true, usize::MAX);
            self.receive_line(false, usize::MAX);
            if self.line.is_empty() {
                self.receive_hot(usize::MAX, |_| true);
            }
        }
        self.join_line();
        let mut index = 0;
        while index < self.hot.len() {
            let key = self.hot[index];
            // One on which nobody wants to receive cools down, too: it would hold the place.
            let socket = self.sockets.get(key);
            let cold =
                socket.is_none_or(|s| self.now.since(s.last_arrival.max(s.hot_since)) > HOT_WINDOW);
            if cold {
                self.cool_down(index);
            } else {
                index += 1;
            }
        }
    }

    /// Receives from the sockets in line, until `most` have brought something or no receive buffer
    /// is left. Returns how many have.
    fn receive_line(&mut self, urgent: bool, most: usize) -> usize {
        let mut received = 0;
        for _ in 0..self.line.of(urgent).len() {
            if received == most || self.receive_buffers.free(0) == 0 {
                break;
            }
            let Some(key) = self.line.of(urgent).pop_front() else {
                break;
            };
            let Some(socket) = self.sockets.get_mut(key) else {
                continue;
            };
            socket.in_line = false;
            let brought = if socket.hot {
                self.poll_receive(key)
            } else {
                self.try_receive(key)
            };
            if brought {
                received += 1;
            } else {
                self.wait_for_arrival(key);
            }
        }
        received
    }

    /// Returns true while sockets wait in line and a receive buffer is free. The ring watches none
    /// of these sockets, so a core that slept would not be woken for them.
    pub(super) fn can_receive_line(&self) -> bool {
        !self.line.is_empty() && self.receive_buffers.free(0) > 0
    }

    /// Puts a socket on which something arrived at the end of the line. The ring is not asked
    /// again: it would say so at once, and the core could not sleep while its owner keeps the
    /// receive buffers.
    pub(super) fn stand_in_line(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if socket.receiving.is_some() && !std::mem::replace(&mut socket.in_line, true) {
            let urgent = socket.is_urgent();
            self.line.of(urgent).push_back(key);
        }
    }

    /// Where some are left in line, the hot sockets stand behind them: read on every turn, they
    /// would be served again and again while others wait.
    fn join_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        self.crowded_until = self.now + CROWD_WINDOW;
        for index in 0..self.hot.len() {
            let key = self.hot[index];
            let urgent = self.sockets.get(key).is_some_and(Socket::is_urgent);
            if !self.line.of(urgent).is_empty() {
                self.stand_in_line(key);
            }
        }
    }

    /// Lets the ring tell about a socket that waits, is not read directly, and is not in line.
    pub(super) fn wait_for_arrival(&mut self, key: SlabKey) {
        let waits = |s: &Socket| s.receiving.is_some() && !s.hot && !s.in_line;
        if self.sockets.get(key).is_some_and(waits) {
            self.watch_arrival(key);
        }
    }

    /// Whether some arrivals go before others now: there is a queue of such, and something came on
    /// one lately.
    pub(super) fn prioritises(&self) -> bool {
        self.urgent_sockets > 0
            && self.now < self.urgent_until
            && self.service.rules().order == Order::Strict
    }

    /// Reads what must not wait, or, where that brings nothing or a floor is owed, a quantum of the
    /// rest. A grant lasts until the next look: what was received is worked on meanwhile.
    fn receive_in_order(&mut self) {
        self.end_grant();
        let before = self.stats.received_bytes;
        // The last buffer is for the rest, which may be owed something.
        let most = self.receive_buffers.free(0).saturating_sub(1);
        let received = self.receive_line(true, most);
        if self.line.of(true).is_empty() {
            self.receive_hot(most - received, Socket::is_urgent);
        }
        let urgent_bytes = self.stats.received_bytes - before;
        let may_wait = |key: &SlabKey| {
            let socket = self.sockets.get(*key);
            socket.is_some_and(|s| !s.is_urgent() && s.receiving.is_some())
        };
        let rest_waits = !self.line.others.is_empty() || self.hot.iter().any(may_wait);
        self.bulk_arrived &= rest_waits;
        let backlog = PerClass::from_fn(|class| match class.properties().may_wait {
            false => urgent_bytes,
            // Nobody knows how much before it was received.
            true if rest_waits => u64::MAX,
            true => 0,
        });
        self.granted_bytes = urgent_bytes;
        let grant = self.service.next(self.now, &backlog);
        if grant.is_none_or(|grant| grant.class.properties().may_wait) {
            let before = self.stats.received_bytes;
            let mut received = self.receive_line(false, 1);
            if self.line.is_empty() && received == 0 {
                received = self.receive_hot(1, |socket| !socket.is_urgent());
            }
            self.bulk_arrived = received > 0;
            self.granted_bytes = self.stats.received_bytes - before;
        }
    }

    /// The grant under way is over; it counts if it brought anything.
    pub(super) fn end_grant(&mut self) {
        let bytes = std::mem::take(&mut self.granted_bytes);
        if bytes > 0 {
            self.service.served(self.now, bytes);
        }
    }

    /// Reads the hot sockets that are `wanted` once each, until `most` have brought something or
    /// no receive buffer is left. Returns how many have.
    fn receive_hot(&mut self, most: usize, wanted: impl Fn(&Socket) -> bool) -> usize {
        let count = self.hot.len();
        if count == 0 || most == 0 {
            return 0;
        }
        let start = self.hot_start % count;
        self.hot_start = start + 1;
        let mut received = 0;
        for i in 0..count {
            let index = (start + i) % count;
            let key = self.hot[index];
            if !self.sockets.get(key).is_some_and(&wanted) {
                continue;
            }
            if self.poll_receive(key) {
                received += 1;
                if received == most {
                    self.hot_start = index + 1;
                    break;
                }
            } else if self.receive_buffers.free(0) == 0 {
                // The next round begins here.
                self.hot_start = index;
                break;
            }
        }
        received
    }

    /// Makes a socket hot, if there is room. Where more sockets are busy than can be hot, only
    /// those are on which data comes again soon: others would take the places for nothing.
    pub(super) fn heat_up(&mut self, key: SlabKey) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        if socket.closing.is_some() {
            return false;
        }
        if !socket.hot && (socket.recurs || self.now >= self.crowded_until) {
            if self.hot.len() < HOT_SOCKETS_MAX {
                socket.hot = true;
                socket.hot_since = self.now;
                self.hot.push(key);
            } else {
                self.crowded_until = self.now + CROWD_WINDOW;
            }
        }
        socket.hot
    }

    /// Takes the hot socket at `index` off the list and lets the ring watch it.
    pub(super) fn cool_down(&mut self, index: usize) {
        let key = self.hot.swap_remove(index);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.hot = false;
            self.wait_for_arrival(key);
        }
    }

    /// Before sleeping, the ring watches every socket that waits for something.
    pub(super) fn watch_hot(&mut self) {
        for index in 0..self.hot.len() {
            let key = self.hot[index];
            let waits = |s: &Socket| s.receiving.is_some() && !s.in_line;
            if self.sockets.get(key).is_some_and(waits) {
                self.watch_arrival(key);
            }
        }
    }
}
