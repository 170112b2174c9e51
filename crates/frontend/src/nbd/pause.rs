//! Connections of a core that leave for another process, and those that come back or from one.
//!
//! A connection is released once its requests are complete and its replies sent; requests that arrive
//! meanwhile stay bytes.

use super::handed::HandedConnection;
use super::message::Released;
use super::service::{NbdService, Pausing};
use base::SlabKey;
use reactor::{Context, Stream};
use std::sync::mpsc::Sender;

impl NbdService {
    /// Begins to release all connections.
    pub(super) fn pause(&mut self, reply: Sender<Released>) {
        let connections = self.connections.iter();
        let secured = connections.filter(|(_, it)| it.is_secured()).count();
        let refused = match secured {
            0 if self.draining.is_none() && self.pausing.is_none() => None,
            0 => Some("it ends".to_owned()),
            count => Some(format!(
                "the state of TLS stays in the process, and clients with TLS ({count}) would be \
                 disconnected; disconnect them, or restart the process instead"
            )),
        };
        if let Some(reason) = refused {
            // The receiver waits for each core.
            let _ = reply.send(Err(reason));
            return;
        }
        self.pausing = Some(Pausing {
            reply,
            releasing: 0,
            released: Vec::new(),
            stays: false,
        });
        for (key, connection) in self.connections.iter_mut() {
            connection.hold();
            self.active.push(key);
        }
    }

    /// Cancels the pause, unless everything is released.
    pub(super) const fn stay(&mut self) {
        if let Some(pausing) = &mut self.pausing {
            pausing.stays = true;
        }
    }

    /// Takes a socket that the driver has released.
    pub(super) fn released(&mut self, key: SlabKey, stream: Stream) {
        let (Some(pausing), Some(connection)) = (&mut self.pausing, self.connections.remove(key))
        else {
            return;
        };
        self.requests.shared.connection_ended();
        pausing.releasing -= 1;
        match stream {
            Stream::Socket(socket, _) => pausing.released.push((connection, socket)),
            Stream::Simulated(..) => unreachable!("clients are the kernel's sockets"),
        }
    }

    /// Replies to the pause when all connections are released and their writes flushed, or when it is
    /// cancelled.
    pub(super) fn run_pause(&mut self, cx: &mut Context<'_>) {
        let Some(pausing) = self.pausing.as_ref().filter(|it| it.releasing == 0) else {
            return;
        };
        let stays = pausing.stays;
        if !stays && (!self.connections.is_empty() || !self.requests.flush_all()) {
            self.again |= self.requests.has_begun();
            return;
        }
        let Some(Pausing {
            reply, released, ..
        }) = self.pausing.take()
        else {
            return;
        };
        let losses = self.requests.io.client().count();
        let losses = (!self.requests.flush_failed()).then_some(losses);
        let handed = released.into_iter();
        let handed = handed.map(|(connection, socket)| connection.into_handed(socket, losses));
        let handed: Vec<_> = handed.collect();
        if !stays {
            // The receiver waits for each core.
            let _ = reply.send(Ok(handed));
            return;
        }
        for connection in handed {
            self.requests.shared.connection_begins();
            self.resume_handed(connection, cx);
        }
        for (key, connection) in self.connections.iter_mut() {
            connection.unhold(key, &mut self.requests);
            self.active.push(key);
        }
        self.again = true;
        let reason = "requests of a client did not finish in time, or it did not receive replies";
        let _ = reply.send(Err(reason.to_owned()));
    }

    /// Serves a connection that was released, here or by a predecessor.
    pub(super) fn resume_handed(&mut self, handed: HandedConnection, cx: &mut Context<'_>) {
        let HandedConnection {
            description,
            bytes,
            socket,
        } = handed;
        let stream = Stream::Socket(socket, None);
        match self.adopt(stream, Some(&description), cx) {
            Some(key) => self.take_in(key, &bytes, cx),
            None => tracing::error!("no room for a client of the process before: disconnected"),
        }
    }
}
