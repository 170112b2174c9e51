//! The requests of all connections of one core.

use super::reply::Owner;
use super::write_order::{WriteOrder, WriteRange};
use crate::limits::CORE_REQUESTS_MAX;
use crate::{DeviceIo, Finished};
use block::Operation;
use reactor::{Context, IoSlice};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
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
    order: Arc<WriteOrder>,
    /// The number of this core.
    core: usize,
    /// Writes that wait, by ticket.
    held: BTreeMap<u64, Write>,
    /// A write that waited has begun since the last turn of the device.
    has_begun: bool,
}

impl Requests {
    pub(super) const fn new(io: DeviceIo<Owner>, order: Arc<WriteOrder>, core: usize) -> Self {
        Self {
            io,
            order,
            core,
            held: BTreeMap::new(),
            has_begun: false,
        }
    }

    /// Returns the number of a new connection.
    pub(super) fn connection(&self) -> u64 {
        self.order.connection()
    }

    /// Returns true if no further request may begin.
    pub(super) fn is_full(&self) -> bool {
        self.io.under_way() + self.held.len() >= CORE_REQUESTS_MAX
    }

    /// Takes a write of a connection, which begins once earlier ones of other connections that overlap
    /// it have ended. Returns false, and begins nothing, if `peer` is given and its client has closed
    /// it.
    pub(super) fn write(
        &mut self,
        connection: u64,
        peer: Option<&OwnedFd>,
        mut write: Write,
    ) -> bool {
        let (start, bytes) = write.range;
        let range = WriteRange {
            start,
            end: start + bytes,
            connection,
        };
        let Some((ticket, begins)) = self.order.enter(range, self.core, peer) else {
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

    /// Begins a write that waited.
    pub(super) fn begin(&mut self, ticket: u64) {
        if let Some(write) = self.held.remove(&ticket) {
            submit(&mut self.io, write);
        }
    }

    /// Takes the next request that is finished. Writes that waited for it begin with the next turn.
    pub(super) fn finished(&mut self) -> Option<Finished<Owner>> {
        let finished = self.io.finished()?;
        if let Some(ticket) = finished.owner.ticket {
            let (io, held, has_begun) = (&mut self.io, &mut self.held, &mut self.has_begun);
            self.order.leave(ticket, self.core, |number| {
                if let Some(write) = held.remove(&number) {
                    *has_begun = true;
                    submit(io, write);
                }
            });
        }
        Some(finished)
    }

    /// Returns true if writes that waited have begun since it was asked last: the device needs another
    /// turn for them.
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
