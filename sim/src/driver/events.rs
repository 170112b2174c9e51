//! Events of a core's sockets: processes them and continues the pending operations.

use super::{Connecting, Listener, PEER, Sending, SimDriver, Socket};
use base::SlabKey;
use reactor::{Outcome, Stream};
use std::io;
use std::net::SocketAddr;

impl SimDriver {
    /// Returns true if the state of the sockets may have changed since the last check.
    pub(super) fn looks_at_sockets(&self) -> bool {
        let looks = self.world.borrow().network.stirred.is_changed(self.number);
        debug_assert!(looks || !self.has_moved(), "a core was not told to look");
        looks
    }

    /// Returns true if an operation on a socket has completed, or can continue.
    pub(super) fn has_moved(&self) -> bool {
        let world = &mut *self.world.borrow_mut();
        let (network, now) = (&world.network, world.now);
        let accepted = |listener: &Listener| {
            listener.accept.is_some() && network.has_connection(listener.address, now)
        };
        let moved = |socket: &Socket| {
            let sends = socket.sending.as_ref().is_some_and(|sending| {
                let goes_on = || sending.is_over() || network.room(socket.end) > 0;
                sending.at <= now && goes_on()
            });
            sends || socket.watched && network.has_arrival(socket.end, now)
        };
        let moved = self.connecting.iter().any(|it| it.at <= now)
            || self.shaking.iter().any(|shaking| shaking.has_moved(world))
            || self.open().any(moved)
            || self.listeners.iter().flatten().any(accepted);
        if !moved {
            world.network.stirred.settle(self.number);
        }
        moved
    }

    /// Processes the events of the sockets.
    pub(super) fn look_at_sockets(&mut self) {
        self.world.borrow_mut().network.stirred.settle(self.number);
        self.poll_accepts();
        self.poll_connects();
        self.poll_handshakes();
        self.poll_sends();
        self.reap_ring();
    }

    fn poll_accepts(&mut self) {
        for slot in 0..self.listeners.len() {
            let Some(Listener {
                address,
                accept: Some(key),
                tls,
            }) = &self.listeners[slot]
            else {
                continue;
            };
            let (address, key, tls) = (*address, *key, tls.clone());
            while let Some(end) = self.next_connection(address) {
                match &tls {
                    Some(server) => self.shake_accepted(slot, key, end, server),
                    None => {
                        let end = self.world.borrow().network.unowned(end);
                        let stream = Stream::Simulated(end, None);
                        self.complete(key, Outcome::Accepted(Ok((stream, PEER))));
                    }
                }
            }
        }
    }

    fn next_connection(&self, address: SocketAddr) -> Option<u64> {
        let world = &mut *self.world.borrow_mut();
        world.network.accept(address, world.now)
    }

    fn poll_connects(&mut self) {
        let now = self.world.borrow().now;
        let mut index = 0;
        while index < self.connecting.len() {
            if self.connecting[index].at > now {
                index += 1;
                continue;
            }
            let Connecting { key, end, tls, .. } = self.connecting.remove(index);
            match (end, tls) {
                (Ok(end), Some(tls)) => self.shake_hands(key, end, tls),
                (end, _) => {
                    let socket = end.map(|end| self.adopt_end(end, None));
                    self.complete(key, Outcome::Connected(socket));
                }
            }
        }
    }

    fn poll_sends(&mut self) {
        let now = self.world.borrow().now;
        for index in 0..self.open.len() {
            let key = self.open[index];
            let Some(socket) = self.sockets.get_mut(key) else {
                continue;
            };
            let Some(sending) = socket.sending.as_ref().filter(|s| s.at <= now) else {
                continue;
            };
            if sending.in_line {
                self.world.borrow_mut().network.stirred.change(self.number);
            } else if sending.is_over() {
                self.end_send(key);
            } else if self.world.borrow().network.room(socket.end) > 0 {
                self.continue_sending(key);
            }
        }
    }

    fn end_send(&mut self, slot: SlabKey) {
        let socket = self.sockets.get_mut(slot);
        let Some(Sending {
            key,
            list,
            broken,
            sealed,
            ..
        }) = socket.and_then(|socket| socket.sending.take())
        else {
            return;
        };
        self.give_back(sealed);
        let result = if broken {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        };
        self.complete(key, Outcome::Sent { list, result });
    }

    /// Reports watched sockets with arrived data, as the ring does, in the order in which they
    /// became readable.
    fn reap_ring(&mut self) {
        let mut told = Vec::new();
        let world = self.world.borrow();
        for &key in &self.open {
            let socket = self.sockets.get(key).expect("it is open");
            if socket.watched && world.network.has_arrival(socket.end, world.now) {
                told.push((world.network.readable_since(socket.end), key));
            }
        }
        drop(world);
        told.sort_by_key(|&(since, _)| since);
        for (_, key) in told {
            let Some(socket) = self.sockets.get_mut(key) else {
                continue;
            };
            socket.watched = false;
            let (arrivals, mut kernel) = self.split();
            let now = kernel.now;
            arrivals.arrived(key, now, &mut kernel);
        }
    }
}
