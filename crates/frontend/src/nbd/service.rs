//! The NBD server on one core.

use super::connection::Connection;
use super::export::Export;
use super::handed::Description;
use super::message::{Message, Released};
use super::peer::Peer;
use super::requests::Requests;
use super::tls::Tls;
use crate::limits::{DRAIN_TIME, NBD_CONNECTIONS_MAX, NBD_CROWDED_TIME};
use base::{Nanos, Slab, SlabKey, Time};
use reactor::{Completion, Context, Op, OpKey, OpNamespace, Outcome, Received, Service, Stream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Interval between checks for clients that have timed out.
const LOOK: Nanos = Nanos::from_secs(1);

const RECEIVE: u8 = 0;
const SEND: u8 = 1;
const CLOSE: u8 = 2;
pub(super) const RELEASE: u8 = 3;

/// The connections of one core.
#[derive(Debug)]
pub(super) struct NbdService {
    exports: Arc<[Export]>,
    tls: Option<Tls>,
    /// Plain text of the bytes received on one connection.
    plain: Vec<u8>,
    pub(super) requests: Requests,
    op_namespace: OpNamespace,
    pub(super) connections: Slab<Connection>,
    /// Maximum connections in the handshake.
    negotiations_max: usize,
    /// Connections with something to send, receive or end, and those that wait for room.
    pub(super) active: Vec<SlabKey>,
    stalled: Vec<SlabKey>,
    look_at: Time,
    pub(super) draining: Option<Time>,
    pub(super) pausing: Option<Pausing>,
    closing: bool,
    /// Connections continue in the next turn: room has become free.
    pub(super) again: bool,
    started: bool,
}

/// A pause on its way.
#[derive(Debug)]
pub(super) struct Pausing {
    pub(super) reply: Sender<Released>,
    /// Connections whose sockets are being released.
    pub(super) releasing: usize,
    pub(super) released: Vec<(Connection, OwnedFd)>,
    /// The pause is cancelled.
    pub(super) stays: bool,
}

impl NbdService {
    pub(super) fn new(
        exports: Arc<[Export]>,
        tls: Option<Tls>,
        requests: Requests,
        op_namespace: OpNamespace,
        negotiations_max: usize,
    ) -> Self {
        Self {
            exports,
            tls,
            plain: Vec::new(),
            requests,
            op_namespace,
            connections: Slab::with_capacity(NBD_CONNECTIONS_MAX),
            negotiations_max,
            active: Vec::new(),
            stalled: Vec::new(),
            look_at: Time::NEVER,
            draining: None,
            pausing: None,
            closing: false,
            again: false,
            started: false,
        }
    }

    fn key(&self, kind: u8, connection: SlabKey) -> OpKey {
        OpKey::new(self.op_namespace, kind, connection)
    }

    fn received(&mut self, key: SlabKey, received: Received, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.receiving = false;
        let is_drained = match (&received.into, &received.rest) {
            (_, Some((buffer, len))) => *len < buffer.len(),
            (Some(into), None) => received.filled < into.len(),
            (None, None) => false,
        };
        if let Some(into) = received.into {
            connection.received(into, received.filled);
            connection.submit_if_arrived(key, &mut self.requests);
        }
        let mut result = received.result.map_err(|_| None);
        if let (Ok(()), Some((buffer, len))) = (&result, &received.rest) {
            let (bytes, plain) = (&buffer[..*len], &mut self.plain);
            let taken = connection.receive(bytes, plain, key, &mut self.requests, cx);
            result = taken.map_err(Some);
        }
        if is_drained && !connection.has_to_resume() {
            connection.is_late = false;
        }
        // The receive of a connection that is being released ends with an error.
        if let Err(reason) = result
            && !connection.leaving
        {
            if let Some(reason) = reason {
                tracing::trace!("closed the connection of a client that {reason}");
            }
            connection.end();
        }
        self.active.push(key);
    }

    /// Records that requests waited in their sockets because this process was suspended.
    fn note_standstill(&mut self, now: Time) {
        if self.look_at + LOOK < now {
            for (_, connection) in self.connections.iter_mut() {
                connection.is_late = true;
            }
        }
    }

    /// Sends and receives for a connection as far as possible, and closes it when it is over.
    fn work(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let [receive, send, close, release] =
            [RECEIVE, SEND, CLOSE, RELEASE].map(|kind| self.key(kind, key));
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let socket = connection.socket;
        if connection.is_gone() {
            self.connections.remove(key);
            self.requests.shared.connection_ended();
            if self.connections.is_empty() {
                cx.driver.buffers().release_free();
            }
            return;
        }
        if connection.close_sent {
            return;
        }
        if let Some(list) = connection.take_list(cx.now) {
            cx.submit(send, Op::Send { socket, list });
        }
        if connection.is_over() {
            if let Some(peer) = connection.closes() {
                peer.pass_over_unread();
            }
            cx.submit(close, Op::Close { socket });
            return;
        }
        if let Some(pausing) = &mut self.pausing
            && !pausing.stays
        {
            if connection.may_leave() {
                (connection.leaving, connection.close_sent) = (true, true);
                pausing.releasing += 1;
                cx.submit(release, Op::Release { socket });
            }
            return;
        }
        if connection.has_to_resume() {
            self.again |= !connection.is_stalled();
            if !self.stalled.contains(&key) {
                self.stalled.push(key);
            }
        } else if connection.takes_requests() && !connection.receiving {
            connection.receiving = true;
            let into = connection.destination();
            cx.submit(receive, Op::Receive { socket, into });
        }
    }

    /// Resumes connections that waited for room, the one that has waited longest for memory first.
    fn resume(&mut self, cx: &mut Context<'_>) {
        let mut stalled = std::mem::take(&mut self.stalled);
        let since = |&key: &SlabKey| {
            let connection = self.connections.get(key);
            connection.map_or(Time::NEVER, |connection| connection.memory.starved_since())
        };
        stalled.sort_by_key(since);
        self.requests.io.release();
        for key in stalled {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if let Err(reason) = connection.resume(key, &mut self.requests, cx) {
                tracing::trace!("closed the connection of a client that {reason}");
                connection.end();
            }
            self.active.push(key);
        }
    }

    /// Ends connections of clients that have timed out.
    fn look(&mut self, cx: &mut Context<'_>) {
        let overdue = self
            .connections
            .iter()
            .filter_map(|(key, connection)| Some((key, connection.overdue(cx.now)?)));
        let overdue: Vec<_> = overdue.collect();
        let crowded = self
            .crowding(cx.now)
            .map(|key| (key, "blocked other clients"));
        for (key, reason) in overdue.into_iter().chain(crowded) {
            self.reset(key, reason, cx);
        }
    }

    /// Returns the connection that has held memory for its client the longest, if another
    /// connection has waited for memory too long.
    fn crowding(&self, now: Time) -> Option<SlabKey> {
        let is_late = |since: Time| since + NBD_CROWDED_TIME <= now;
        let all = || self.connections.iter();
        all().find(|(_, connection)| is_late(connection.memory.starved_since()))?;
        let held = all().map(|(key, connection)| (connection.awaited_since(), key));
        let (since, key) = held.min_by_key(|&(since, _)| since)?;
        is_late(since).then_some(key)
    }

    fn reset(&mut self, key: SlabKey, reason: &str, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.close_sent {
            return;
        }
        tracing::trace!("reset the connection of a client that {reason}");
        connection.abandon();
        drop(connection.closes());
        let socket = connection.socket;
        let key = OpKey::new(self.op_namespace, CLOSE, key);
        cx.submit(key, Op::Reset { socket });
    }

    /// Ends the server once its connections are closed and their writes are flushed, or at the
    /// deadline.
    fn drain(&mut self, cx: &mut Context<'_>) {
        let Some(by) = self.draining.filter(|_| !self.closing) else {
            return;
        };
        if cx.now >= by {
            tracing::warn!("requests did not finish within the drain time; they are cancelled");
            self.requests.set_forced();
            let all: Vec<_> = self.connections.iter().map(|(key, _)| key).collect();
            for key in all {
                self.reset(key, "has requests in flight", cx);
            }
        } else if !self.connections.is_empty() || !self.requests.flush_all() {
            self.again |= self.requests.has_begun();
            return;
        }
        if self.requests.flush_failed() {
            self.requests.set_forced();
        }
        self.closing = true;
        self.requests.close(cx);
    }

    /// Makes room for another connection in the handshake by resetting the oldest one.
    fn make_room(&mut self, cx: &mut Context<'_>) {
        let all = self.connections.iter();
        let negotiating = all.filter_map(|(key, connection)| Some((connection.negotiates()?, key)));
        let negotiating: Vec<_> = negotiating.collect();
        if negotiating.len() >= self.negotiations_max
            && let Some((_, key)) = negotiating.into_iter().min_by_key(|&(by, _)| by)
        {
            self.reset(key, "was the oldest of too many clients in negotiation", cx);
        }
    }

    /// Serves a client; one that was `handed` over continues.
    pub(super) fn adopt(
        &mut self,
        stream: Stream,
        handed: Option<&Description>,
        cx: &mut Context<'_>,
    ) -> Option<SlabKey> {
        if self.draining.is_some() || !cx.driver.has_room_for_socket() {
            self.requests.shared.connection_ended();
            return None;
        }
        let peer = match &stream {
            Stream::Socket(fd, _) => fd.try_clone().map(Peer),
            Stream::Simulated(..) => unreachable!("clients are the kernel's sockets"),
        };
        let Ok(peer) = peer else {
            // The process is out of descriptors.
            self.requests.shared.connection_ended();
            return None;
        };
        self.make_room(cx);
        let socket = cx.driver.adopt(stream);
        let mut connection = Connection::new(
            (socket, peer),
            self.requests.connection(),
            &self.exports,
            self.tls.as_ref(),
            self.requests.io.client(),
            cx.now,
        );
        if let Some(description) = handed {
            connection.resume_as(description);
        }
        let Ok(key) = self.connections.insert(connection) else {
            unreachable!("the listener bounds the connections");
        };
        self.active.push(key);
        self.look_at = self.look_at.min(cx.now + LOOK);
        Some(key)
    }

    /// Handles bytes that a client has sent to a predecessor.
    pub(super) fn take_in(&mut self, key: SlabKey, bytes: &[u8], cx: &mut Context<'_>) {
        if let Some(connection) = self.connections.get_mut(key)
            && let Err(reason) =
                connection.receive(bytes, &mut self.plain, key, &mut self.requests, cx)
        {
            tracing::trace!("closed the connection of a client that {reason}");
            connection.end();
        }
    }
}

impl Service for NbdService {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let Some(Completion { key, outcome }) = self.requests.io.apply(completion, cx) else {
            return;
        };
        let slot = key.slab_key();
        match outcome {
            Outcome::Received(received) => {
                self.note_standstill(cx.now);
                self.received(slot, received, cx);
            }
            Outcome::Sent { list, result } => {
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.sent(list);
                    if result.is_err() {
                        connection.abandon();
                    }
                    self.active.push(slot);
                }
            }
            Outcome::Closed => {
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.closed = true;
                    self.active.push(slot);
                }
            }
            Outcome::Released(stream) => self.released(slot, stream),
            _ => unreachable!("the service starts nothing else"),
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            Message::Connection(stream) => {
                self.adopt(stream, None, cx);
            }
            Message::Pause(reply) => self.pause(reply),
            Message::Stay => self.stay(),
            Message::Resume(handed) => self.resume_handed(*handed, cx),
            Message::Begin(ticket) => self.requests.begin(ticket),
            Message::Ping(ping) => drop(ping),
            Message::Drain => {
                self.draining = Some(cx.now + DRAIN_TIME);
                self.look_at = self.look_at.min(cx.now + LOOK);
                for (key, connection) in self.connections.iter_mut() {
                    connection.end();
                    self.active.push(key);
                }
            }
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.started = true;
        self.again = false;
        self.resume(cx);
        self.requests.io.turn(cx);
        while let Some(finished) = self.requests.finished() {
            let key = finished.owner.connection;
            let Some(connection) = self.connections.get_mut(key) else {
                // The last Flush: a connection outlives its requests.
                continue;
            };
            connection.finish(finished);
            self.active.push(key);
            self.again |= !self.stalled.is_empty();
        }
        self.again |= self.requests.has_begun();
        if cx.now >= self.look_at {
            self.look(cx);
            let some = !self.connections.is_empty() || self.draining.is_some();
            self.look_at = if some { cx.now + LOOK } else { Time::NEVER };
        }
        let mut index = 0;
        while let Some(&key) = self.active.get(index) {
            self.work(key, cx);
            index += 1;
        }
        self.active.clear();
        self.run_pause(cx);
        self.drain(cx);
    }

    fn deadline(&self) -> Time {
        // A request that waits for room begins when another request finishes.
        if !self.started || self.again {
            return Time::ZERO;
        }
        self.look_at.min(self.requests.io.deadline())
    }

    fn finished(&self) -> bool {
        self.closing && self.connections.is_empty() && self.requests.io.closed()
    }
}
