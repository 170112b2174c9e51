//! Operations on connections: starting a send, receive, close or release, and ending those that
//! cannot continue.

use super::socket::{Receiving, Sending};
use super::{UringDriver, canceled, shared_memory};
use crate::arrivals::Wanted;
use crate::memory::IoSlice;
use crate::op::{OpKey, Outcome, Received, SocketId, Stream};
use crate::send_list::SendList;
use base::SlabKey;
use rustix::net::sockopt;
use secure::record::Alert;
use std::io;
use std::time::Duration;

impl UringDriver {
    pub(super) fn refuse_send(&mut self, key: OpKey, list: Box<SendList>, error: io::Error) {
        let result = Err(error);
        self.complete(key, Outcome::Sent { list, result });
    }

    pub(super) fn refuse_receive(&mut self, key: OpKey, into: Option<IoSlice>, error: io::Error) {
        let received = Received {
            into,
            filled: 0,
            rest: None,
            result: Err(error),
        };
        self.complete(key, Outcome::Received(received));
    }

    pub(super) fn submit_send(&mut self, key: OpKey, socket: SocketId, list: Box<SendList>) {
        let slot = self.socket_key(socket);
        let entry = self.sockets.get_mut(slot).expect("just looked up");
        if entry.closing.is_some() {
            return self.refuse_send(key, list, canceled());
        }
        assert!(entry.sending.is_none(), "one send at a time per socket");
        entry.sending = Some(Sending::new(key, list));
        self.continue_sending(slot);
    }

    /// Continues the outstanding send, if any.
    pub(super) fn continue_sending(&mut self, slot: SlabKey) {
        let (arrivals, mut receiver) = self.split();
        arrivals.sends(slot, &mut receiver);
    }

    pub(super) fn submit_receive(&mut self, key: OpKey, socket: SocketId, into: Option<IoSlice>) {
        let slot = self.socket_key(socket);
        let entry = self.sockets.get_mut(slot).expect("just looked up");
        if entry.closing.is_some() {
            return self.refuse_receive(key, into, canceled());
        }
        if into.as_ref().is_some_and(|slice| !slice.is_writable()) {
            return self.refuse_receive(key, into, shared_memory());
        }
        assert!(
            entry.receiving.is_none(),
            "one receive at a time per socket"
        );
        entry.interest.wanted = if into.is_some() {
            Wanted::Payload
        } else {
            Wanted::Anything
        };
        entry.receiving = Some(Receiving { key, into });
        let now = self.now;
        let (arrivals, mut receiver) = self.split();
        arrivals.wanted(slot, now, &mut receiver);
    }

    /// Closes a socket: everything pending on it ends now, and the socket itself in its turn, once
    /// the ring has released it.
    pub(super) fn close(&mut self, key: SlabKey, closing: OpKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        assert!(socket.closing.is_none(), "a socket is closed once");
        socket.closing = Some(closing);
        let released = socket.released;
        if !released && socket.sending.is_none() {
            socket.end_session(Alert::CLOSE_NOTIFY);
        }
        let (sending, receiving) = (socket.sending.take(), socket.receiving.take());
        let (arrivals, mut receiver) = self.split();
        arrivals.closes(key, &mut receiver);
        if let Some(Sending {
            key, list, sealed, ..
        }) = sending
        {
            sealed.into_iter().for_each(|it| self.tls.give_back(it));
            self.refuse_send(key, list, canceled());
        }
        if let Some(Receiving { key, into }) = receiving {
            self.refuse_receive(key, into, canceled());
        }
        if released {
            self.let_go(key);
        } else {
            self.arrivals.close_in_turn(key);
        }
    }

    /// Withdraws a closing socket from the ring, and closes it once the ring has released it.
    pub(super) fn let_go(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        socket.let_go = true;
        for operation in [socket.poll_in, socket.poll_out].into_iter().flatten() {
            self.cancel(operation);
        }
        self.finish_close(key);
    }

    /// Closes a socket and drops the unsent data in the kernel.
    pub(super) fn reset(&mut self, key: SlabKey, closing: OpKey) {
        if let Some(socket) = self.sockets.get_mut(key) {
            if let Some(session) = &mut socket.session {
                session.silence();
            }
            // A broken connection sends nothing anyway.
            let _ = sockopt::set_socket_linger(&socket.fd, Some(Duration::ZERO));
        }
        self.close(key, closing);
    }

    /// Removes a closing socket once the ring no longer watches it.
    pub(super) fn finish_close(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get(key) else {
            return;
        };
        let Some(closing) = socket.closing else {
            return;
        };
        if socket.let_go && socket.poll_in.is_none() && socket.poll_out.is_none() {
            let Some(socket) = self.sockets.remove(key) else {
                return;
            };
            self.arrivals.closed(&socket.interest);
            let outcome = if socket.released {
                Outcome::Released(Stream::Socket(socket.fd, socket.session))
            } else {
                Outcome::Closed
            };
            self.complete(closing, outcome);
        }
    }

    /// Releases a connection once the ring no longer watches it.
    pub(super) fn release(&mut self, key: OpKey, socket: SocketId) {
        let slot = self.socket_key(socket);
        let entry = self.sockets.get_mut(slot).expect("just looked up");
        assert!(entry.sending.is_none(), "nothing is being sent");
        entry.released = true;
        self.close(slot, key);
    }
}
