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

/// A request that writes, with its range of bytes and its data.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) class: Class,
    pub(super) operation: Operation,
    pub(super) range: (u64, u64),
    pub(super) data: Vec<IoSlice>,
    pub(super) owner: Owner,
}

/// The requests of one core in the device, and those that wait for overlapping writes.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) io: DeviceIo<Owner>,
    pub(super) shared: Arc<SharedServer>,
    /// The number of this core.
    core: usize,
    /// Writes that wait, by ticket.
    held: BTreeMap<u64, Write>,
    /// A write that waited, or the last Flush, has begun since the last turn of the device.
    has_begun: bool,
    /// Writes that were answered and need a Flush to be on stable storage; those of them that a Flush
    /// has covered; and true while the last Flush is in flight.
    written: u64,
    flushed: u64,
    flushes: bool,
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
        }
    }

    /// Returns the number of a new connection.
    pub(super) fn connection(&self) -> u64 {
        self.shared.order.connection()
    }

    /// Returns true if no further request may begin.
    pub(super) fn is_full(&self) -> bool {
        self.io.under_way() + self.held.len() >= CORE_REQUESTS_MAX
    }

    /// Takes a write of a connection, which begins once earlier ones of other connections that overlap
    /// it have ended. Returns false, and begins nothing, if `peer` is given and its client has closed
    /// it.
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

    /// Begins a Flush of a connection that knows of these losses.
    pub(super) fn flush(&mut self, class: Class, losses: &KnownLosses, mut owner: Owner) {
        owner.covers = self.written;
        self.io.flush(class, losses, owner);
    }

    /// Returns true if all that was written is on stable storage, or cannot be brought there; if not,
    /// a Flush is in flight afterwards.
    pub(super) fn flush_all(&mut self) -> bool {
        let is_flushed = self.written == self.flushed;
        if !is_flushed && !std::mem::replace(&mut self.flushes, true) {
            self.has_begun = true;
            let client = self.io.client();
            self.flush(Class::DEFAULT, &client, Owner::last_flush());
        }
        is_flushed
    }

    /// Notes that the end of the server gives something up.
    pub(super) fn set_forced(&self) {
        self.shared.forced.store(true, Ordering::Relaxed);
    }

    /// Begins a write that waited.
    pub(super) fn begin(&mut self, ticket: u64) {
        if let Some(write) = self.held.remove(&ticket) {
            submit(&mut self.io, write);
        }
    }

    /// Takes the next request that is finished. Writes that waited for it begin with the next turn.
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
            self.set_forced();
            self.flushed = self.written;
        }
    }

    /// Returns true if requests have begun by themselves since it was asked last: the device needs
    /// another turn for them.
    pub(super) const fn has_begun(&mut self) -> bool {
        std::mem::replace(&mut self.has_begun, false)
    }

    /// Closes the device: requests in it are aborted if need be, and so are those that wait.
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
