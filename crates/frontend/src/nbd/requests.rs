//! The requests of all connections of one core.

use super::peer::Peer;
use super::protocol::command;
use super::reply::Owner;
use super::shared::SharedServer;
use super::write_order::WriteRange;
use crate::limits::CORE_REQUESTS_MAX;
use crate::{DeviceIo, Finished, KnownLosses};
use block::Operation;
use reactor::{Context, IoSlice};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use switch::Class;

/// A request that writes, with its byte range and data.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) class: Class,
    pub(super) operation: Operation,
    pub(super) range: (u64, u64),
    pub(super) data: Vec<IoSlice>,
    pub(super) owner: Owner,
}

/// The requests of one core: those in the device, and those that wait for overlapping writes.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) io: DeviceIo<Owner>,
    pub(super) shared: Arc<SharedServer>,
    /// Index of this core.
    core: usize,
    /// Waiting writes, by ticket.
    held: BTreeMap<u64, Write>,
    /// A write that waited, or the last Flush, has begun since the device's last turn.
    has_begun: bool,
    /// Number of completed writes that need a Flush to be on stable storage; how many of them a
    /// Flush has covered; and whether the last Flush is in flight.
    written: u64,
    flushed: u64,
    flushes: bool,
    /// A Flush of the server has failed: data may not be on stable storage.
    flush_failed: bool,
}

impl Requests {
    pub(super) const fn new(io: DeviceIo<Owner>, shared: Arc<SharedServer>, core: usize) -> Self {
        Self {
            io,
            shared,
            core,
            held: BTreeMap::new(),
            has_begun: false,
            written: 0,
            flushed: 0,
            flushes: false,
            flush_failed: false,
        }
    }

    /// Returns the number of a new connection.
    pub(super) fn connection(&self) -> u64 {
        self.shared.order.connection()
    }

    /// Returns true if no more requests may begin.
    pub(super) fn is_full(&self) -> bool {
        self.io.under_way() + self.held.len() >= CORE_REQUESTS_MAX
    }

    /// Accepts a write of a connection. It begins once earlier overlapping writes of other
    /// connections have ended. Returns false without accepting it if `peer` is given and the client
    /// has closed the connection.
    pub(super) fn write(&mut self, connection: u64, peer: Option<&Peer>, mut write: Write) -> bool {
        let (start, bytes) = write.range;
        let range = WriteRange {
            start,
            end: start + bytes,
            connection,
        };
        let Some((ticket, begins)) = self.shared.order.enter(range, self.core, peer) else {
            return false;
        };
        write.owner.ticket = Some(ticket);
        if begins {
            submit(&mut self.io, write);
        } else {
            self.held.insert(ticket.number(), write);
        }
        true
    }

    /// Begins a Flush of a connection with these known losses.
    pub(super) fn flush(&mut self, class: Class, losses: &KnownLosses, mut owner: Owner) {
        owner.covers = self.written;
        self.io.flush(class, losses, owner);
    }

    /// Returns true if all written data is on stable storage, or cannot be flushed. Otherwise a
    /// Flush is in flight afterwards.
    pub(super) fn flush_all(&mut self) -> bool {
        let is_flushed = self.written == self.flushed;
        if !is_flushed && !std::mem::replace(&mut self.flushes, true) {
            self.has_begun = true;
            let client = self.io.client();
            self.flush(Class::DEFAULT, &client, Owner::last_flush());
        }
        is_flushed
    }

    /// Returns true if a Flush of the server has failed since the last call.
    pub(super) const fn flush_failed(&mut self) -> bool {
        std::mem::replace(&mut self.flush_failed, false)
    }

    /// Records that the server ends without completing everything.
    pub(super) fn set_forced(&self) {
        self.shared.forced.store(true, Ordering::Relaxed);
    }

    /// Begins a write that waited.
    pub(super) fn begin(&mut self, ticket: u64) {
        if let Some(write) = self.held.remove(&ticket) {
            submit(&mut self.io, write);
        }
    }

    /// Returns the next finished request. Writes that waited for it begin with the next turn.
    pub(super) fn finished(&mut self) -> Option<Finished<Owner>> {
        let finished = self.io.finished()?;
        self.note_durability(&finished);
        if let Some(ticket) = finished.owner.ticket {
            let (io, held, has_begun) = (&mut self.io, &mut self.held, &mut self.has_begun);
            self.shared.order.leave(ticket, self.core, |number| {
                if let Some(write) = held.remove(&number) {
                    *has_begun = true;
                    submit(io, write);
                }
            });
        }
        Some(finished)
    }

    fn note_durability(&mut self, finished: &Finished<Owner>) {
        let (owner, is_done) = (&finished.owner, finished.result.is_ok());
        if owner.ticket.is_some() && is_done && !owner.is_durable {
            self.written += 1;
        } else if owner.command == command::FLUSH && is_done {
            self.flushed = self.flushed.max(owner.covers);
        } else if owner.is_last() && !is_done {
            tracing::warn!("cannot flush the device: {:?}", finished.result);
            self.flush_failed = true;
            self.flushed = self.written;
        }
        self.flushes &= !owner.is_last();
    }

    /// Returns true if requests have begun since the last call without one from a client: the
    /// device needs another turn for them.
    pub(super) const fn has_begun(&mut self) -> bool {
        std::mem::replace(&mut self.has_begun, false)
    }

    /// Closes the device: its requests are aborted if necessary, and so are waiting ones.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        self.io.close(cx);
        for write in std::mem::take(&mut self.held).into_values() {
            submit(&mut self.io, write);
        }
    }
}

fn submit(io: &mut DeviceIo<Owner>, write: Write) {
    io.submit(
        write.class,
        write.operation,
        write.range,
        write.data,
        write.owner,
    );
}
