//! Listening sockets, and the single accept of each, which continues until the listener is closed.
//!
//! Only the driver decides when to accept again. A peer that disconnects before it is accepted is
//! skipped. While descriptors or memory are short, the ring pauses briefly and continues by itself.
//! So a peer can neither end the accept nor start a second one.

use super::operations::{RingOp, io_result};
use super::{UringDriver, socket};
use crate::limits::{ACCEPT_PAUSE, LISTENERS_MAX};
use crate::op::{ListenerId, OpKey, Outcome, SocketOptions, Stream};
use crate::tls::Side;
use base::SlabKey;
use io_uring::{opcode, types};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Backlog: connections that the kernel queues for `accept`.
const BACKLOG: i32 = 1024;

/// A listening socket. It stays in the table until its accept has ended, so that late completions
/// refer to it and not to its successor.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    /// The ring's operation of the accept, or of its pause.
    accept: Option<u64>,
    /// Options of the accepted connections.
    options: SocketOptions,
    /// It accepts no more.
    closed: bool,
    /// The socket was handed on, and still listens.
    released: bool,
}

impl UringDriver {
    pub(super) fn listen_on(
        &mut self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        use socket2::{Domain, Protocol, Socket as Raw, Type};
        self.check_listeners()?;
        let domain = Domain::for_address(address);
        let raw = Raw::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        raw.set_reuse_address(true)?;
        if address.is_ipv6() {
            raw.set_only_v6(true)?;
        }
        raw.bind(&address.into())?;
        let fd = OwnedFd::from(raw);
        // Accepted connections inherit them, which saves nine system calls each.
        socket::configure(&fd, options)?;
        rustix::net::listen(&fd, BACKLOG)?;
        self.adopt_listening(fd, options)
    }

    fn check_listeners(&self) -> io::Result<()> {
        if self.listeners.is_full() {
            let reason = format!("a core listens on at most {LISTENERS_MAX} addresses");
            return Err(io::Error::other(reason));
        }
        Ok(())
    }

    /// Takes over a socket that listens.
    pub(super) fn adopt_listening(
        &mut self,
        fd: OwnedFd,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        self.check_listeners()?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
        let listener = Listener {
            fd,
            accept: None,
            options: options.clone(),
            closed: false,
            released: false,
        };
        let key = self.listeners.insert(listener);
        let key = key.expect("there was room for another listener");
        Ok((ListenerId(key.index), bound))
    }

    /// Returns a listener's socket, and accepts no more.
    pub(super) fn hand_listener_on(&mut self, listener: ListenerId) -> io::Result<OwnedFd> {
        let key = self.listeners.key_at(listener.0);
        let entry = key.and_then(|key| self.listeners.get_mut(key));
        let entry = entry.filter(|entry| !entry.closed);
        let entry = entry.ok_or(io::ErrorKind::NotConnected)?;
        let fd = entry.fd.try_clone()?;
        (entry.closed, entry.released) = (true, true);
        match (entry.accept, key) {
            (Some(operation), _) => self.cancel(operation),
            (None, Some(key)) => drop(self.listeners.remove(key)),
            (None, None) => {}
        }
        Ok(fd)
    }

    pub(super) fn stop_listening(&mut self, listener: ListenerId) {
        let Some(key) = self.listeners.key_at(listener.0) else {
            return;
        };
        let Some(entry) = self.listeners.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut entry.closed, true) {
            return;
        }
        // The kernel refuses connections from now on, although the ring still holds the socket.
        let _ = rustix::net::shutdown(&entry.fd, rustix::net::Shutdown::Both);
        match entry.accept {
            Some(operation) => self.cancel(operation),
            None => drop(self.listeners.remove(key)),
        }
    }

    /// Returns true while the listener accepts connections.
    pub(super) fn listens(&self, listener: SlabKey) -> bool {
        let entry = self.listeners.get(listener);
        entry.is_some_and(|entry| !entry.closed)
    }

    pub(super) fn submit_accept(&mut self, key: OpKey, listener: ListenerId) {
        let slot = self.listeners.key_at(listener.0);
        let entry = slot.and_then(|slot| self.listeners.get(slot));
        let error = match (slot, entry) {
            (Some(slot), Some(entry)) if !entry.closed && entry.accept.is_none() => {
                return self.start_accept(slot, key);
            }
            (_, Some(entry)) if !entry.closed => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::NotConnected,
        };
        self.complete(key, Outcome::Accepted(Err(error.into())));
    }

    fn start_accept(&mut self, listener: SlabKey, key: OpKey) {
        let Some(entry) = self.listeners.get(listener) else {
            return;
        };
        let accept = opcode::AcceptMulti::new(types::Fd(entry.fd.as_raw_fd()));
        let operation = self.enter_operation(RingOp::Accept(listener, key));
        self.push(accept.flags(libc::SOCK_CLOEXEC).build(), operation);
        self.set_accept(listener, operation);
    }

    fn pause_accept(&mut self, listener: SlabKey, key: OpKey) {
        let operation = self.enter_operation(RingOp::AcceptPause(listener, key));
        let timeout = self.set_timeout(operation, ACCEPT_PAUSE);
        self.push(opcode::Timeout::new(timeout).build(), operation);
        self.set_accept(listener, operation);
    }

    fn set_accept(&mut self, listener: SlabKey, operation: SlabKey) {
        if let Some(entry) = self.listeners.get_mut(listener) {
            entry.accept = Some(operation.tag());
        }
    }

    /// Handles an accepted connection, or one failed accept.
    pub(super) fn accepted(&mut self, listener: SlabKey, key: OpKey, result: i32) {
        let Ok(fd) = io_result(result).map(|_| owned(result)) else {
            return;
        };
        let entry = self.listeners.get(listener);
        // A connection accepted meanwhile goes where the listener goes.
        let Some(entry) = entry.filter(|entry| !entry.closed || entry.released) else {
            return;
        };
        // If this fails, the peer has already disconnected.
        if let Ok(peer) = peer_of(&fd) {
            socket::tune_to_peer(&fd, peer, &entry.options);
            if let Some(Side::Server(server)) = &entry.options.tls {
                let server = Arc::clone(server);
                return self.shake_accepted((key, listener), (fd, peer), &server);
            }
            let stream = Stream::Socket(fd, None);
            self.complete(key, Outcome::Accepted(Ok((stream, peer))));
        }
    }

    /// Handles the end of the ring's accept: the listener is closed, descriptors or memory are
    /// short, or the kernel ended it for another reason.
    pub(super) fn accept_ended(&mut self, listener: SlabKey, key: OpKey, result: i32) {
        self.accepted(listener, key, result);
        if !self.listens(listener)
            || result >= 0
            || matches!(-result, libc::ECONNABORTED | libc::EINTR)
        {
            return self.accept_again(listener, key);
        }
        let error = io::Error::from_raw_os_error(-result);
        self.complete(key, Outcome::Accepted(Err(error)));
        self.pause_accept(listener, key);
    }

    /// Accepts again, unless the listener is closed: then the accept completes for the last time.
    pub(super) fn accept_again(&mut self, listener: SlabKey, key: OpKey) {
        if self.listens(listener) {
            return self.start_accept(listener, key);
        }
        drop(self.listeners.remove(listener));
        let error = io::Error::from_raw_os_error(libc::ECANCELED);
        self.complete(key, Outcome::Accepted(Err(error)));
    }
}

fn peer_of(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let peer = rustix::net::getpeername(fd)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(SocketAddr::try_from(peer)?)
}

#[expect(
    unsafe_code,
    reason = "the kernel hands the descriptor over as a number"
)]
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: an accept that completed with this number made the descriptor for us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
