//! The hot sockets: those that are read directly on every turn, because data came lately.

use super::socket::Socket;
use super::{HOT_WINDOW, UringDriver};
use crate::limits::{HOT_SOCKETS_MAX, OVERDUE_RECEIVES_MAX};
use base::SlabKey;
use switch::PerClass;
use switch::scheduler::Order;

impl UringDriver {
    /// Receives from sockets on which something arrived while no receive buffer was free, oldest
    /// first. They leave half of the buffers to the hot sockets, so that neither starves.
    pub(super) fn receive_overdue(&mut self) {
        for _ in 0..OVERDUE_RECEIVES_MAX.min(self.overdue.len()) {
            if self.receive_buffers.free(0) == 0 {
                return;
            }
            let Some(key) = self.overdue.pop_front() else {
                return;
            };
            let Some(socket) = self.sockets.get_mut(key) else {
                continue;
            };
            if std::mem::replace(&mut socket.overdue, false) && !self.try_receive(key) {
                self.wait_for_arrival(key);
            }
        }
    }

    /// Returns true while sockets wait for a receive buffer and one is free. The ring watches none
    /// of these sockets, so a core that slept would not be woken for them.
    pub(super) fn can_receive_overdue(&self) -> bool {
        !self.overdue.is_empty() && self.receive_buffers.free(0) > 0
    }

    /// Something arrived on a socket, but no receive buffer is free. The ring is not asked again:
    /// it would say so at once, and the core could not sleep while its owner keeps the buffers.
    pub(super) fn set_overdue(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if socket.receiving.is_some() && !std::mem::replace(&mut socket.overdue, true) {
            self.overdue.push_back(key);
        }
    }

    /// Lets the ring tell about a socket that waits, is not read directly, and is not overdue.
    pub(super) fn wait_for_arrival(&mut self, key: SlabKey) {
        let waits = |s: &Socket| s.receiving.is_some() && !s.hot && !s.overdue;
        if self.sockets.get(key).is_some_and(waits) {
            self.watch_arrival(key);
        }
    }

    /// Reads every hot socket once, as long as there are receive buffers; the silent ones cool
    /// down.
    pub(super) fn receive_hot(&mut self) {
        let count = self.hot.len();
        let prioritises = self.prioritises();
        if count == 0 || !prioritises {
            // Nothing is left for a later look, which would never come.
            self.bulk_arrived = false;
        }
        if count == 0 {
            return;
        }
        if prioritises {
            self.receive_in_order(count);
        } else {
            self.receive_some(count, |_| true);
        }
        let mut index = 0;
        while index < self.hot.len() {
            let key = self.hot[index];
            // One on which nobody wants to receive cools down, too: it would hold the place.
            let socket = self.sockets.get(key);
            let cold = socket.is_none_or(|s| self.now.since(s.last_arrival) > HOT_WINDOW);
            if cold {
                self.cool_down(index);
            } else {
                index += 1;
            }
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
    fn receive_in_order(&mut self, count: usize) {
        self.end_grant();
        let before = self.stats.received_bytes;
        self.receive_some(count, Socket::is_urgent);
        let urgent_bytes = self.stats.received_bytes - before;
        let may_wait = |key: &SlabKey| {
            let socket = self.sockets.get(*key);
            socket.is_some_and(|s| !s.is_urgent() && s.receiving.is_some())
        };
        let rest_waits = self.hot.iter().any(may_wait);
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
            self.bulk_arrived = self.receive_some(1, |socket| !socket.is_urgent()) > 0;
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
    fn receive_some(&mut self, most: usize, wanted: impl Fn(&Socket) -> bool) -> usize {
        let count = self.hot.len();
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

    /// Makes a socket hot, if there is room.
    pub(super) fn heat_up(&mut self, key: SlabKey) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        if socket.closing.is_some() {
            return false;
        }
        if !socket.hot && self.hot.len() < HOT_SOCKETS_MAX {
            socket.hot = true;
            socket.last_arrival = self.now;
            self.hot.push(key);
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
            let waits = |s: &Socket| s.receiving.is_some() && !s.overdue;
            if self.sockets.get(key).is_some_and(waits) {
                self.watch_arrival(key);
            }
        }
    }
}
