//! Requests in flight, and replies to them.

use super::export::ALLOCATION_CONTEXT;
use super::protocol::{Form, NbdError, Replies, RequestHeader, Writer, command};
use super::write_order::Ticket;
use base::SlabKey;
use reactor::IoSlice;

/// The data of a request that its completion needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) connection: SlabKey,
    cookie: u64,
    offset: u64,
    length: u64,
    pub(super) command: u16,
    /// The write's place in the order.
    pub(super) ticket: Option<Ticket>,
    /// The write must be on stable storage when it completes.
    pub(super) is_durable: bool,
    /// For a Flush: the number of writes replied to before it, which it covers.
    pub(super) covers: u64,
}

/// Connection key of the server's last Flush: no connection has it.
const NO_CONNECTION: SlabKey = SlabKey {
    index: u32::MAX,
    generation: 0,
};

impl Owner {
    pub(super) const fn new(header: RequestHeader, connection: SlabKey) -> Self {
        Self {
            connection,
            cookie: header.cookie,
            offset: header.offset,
            length: header.length,
            command: header.command,
            ticket: None,
            is_durable: header.is_durable(),
            covers: 0,
        }
    }

    /// The server's own Flush when it ends.
    pub(super) const fn last_flush() -> Self {
        Self {
            connection: NO_CONNECTION,
            cookie: 0,
            offset: 0,
            length: 0,
            command: command::FLUSH,
            ticket: None,
            is_durable: false,
            covers: 0,
        }
    }

    /// Returns true for the server's own Flush.
    pub(super) fn is_last(&self) -> bool {
        self.connection == NO_CONNECTION
    }
}

/// The reply to a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) owner: Owner,
    pub(super) result: Result<(), NbdError>,
    pub(super) data: Vec<IoSlice>,
}

impl Reply {
    /// Writes the reply except for its data, which follow.
    pub(super) fn write_header(&self, form: Form, output: &mut Writer) {
        let replies = Replies { form };
        let Owner {
            cookie,
            offset,
            length,
            command,
            ..
        } = self.owner;
        match self.result {
            Err(error) => replies.error(output, cookie, offset, error),
            Ok(()) if command == command::READ => replies.data(output, cookie, offset, length),
            Ok(()) if command == command::BLOCK_STATUS => {
                replies.allocated(output, cookie, (offset, length), ALLOCATION_CONTEXT);
            }
            Ok(()) => replies.done(output, cookie, offset),
        }
    }
}
