//! A command with its data, from submission to completion.

use crate::command::BlockRequest;
use crate::command::extents::ExtentsRequest;
use crate::recovery::span::Span;
use base::Time;
use base::units::Lba;
use block::{BlockError, Operation};
use reactor::IoSlice;
use std::num::NonZeroU16;
use wire::nvme::{Command, FabricsType};

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// No data.
    None,
    /// From the controller.
    In,
    /// To the controller.
    Out,
}

/// A command with its data, from submission to completion.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The submitter's tag.
    pub(crate) tag: u64,
    /// The command or request.
    pub(crate) work: Work,
    /// Direction of the data.
    pub(crate) direction: Direction,
    /// The data of this command: part of the submitter's data if the request takes several
    /// commands. Shared while it is being sent.
    pub(crate) data: Option<IoSlice>,
    /// True if the data had other owners when it was submitted; it may then still have them when it
    /// is returned.
    pub(crate) lent: bool,
    /// Number of time-outs so far.
    pub(crate) timeouts: u8,
    /// Number of times that it was sent again at the controller's request.
    pub(crate) retries: u8,
    /// It was lost with a connection: its range is locked against newer writes.
    pub(crate) replayed: bool,
    /// The error with which the submitter gave it up, reported unless the controller's answer comes
    /// first.
    pub(crate) given_up: Option<BlockError>,
    /// The error was reported and the submitter has its memory back: only the controller's answer
    /// is missing.
    pub(crate) detached: bool,
    /// Time at which it is given up; [`Time::NEVER`] for no limit.
    pub(crate) limit: Time,
    /// `limit` was not set by the submitter: it bounds the wait for an older, given-up write to the
    /// same blocks, and is lifted when that wait is over.
    pub(crate) held: bool,
}

/// Content of a command. Its identifier and data pointer are set when it is sent.
#[derive(Debug)]
pub(crate) enum Work {
    /// An admin command, ready to be sent.
    Admin(Box<Command>),
    /// A block request. Its command is made when it is sent, because the request is smaller and the
    /// table of a deep queue must stay in the cache.
    Block(BlockRequest),
    /// A command over extents; the exchange's data is the data in its capsule.
    Extents(Box<ExtentsRequest>),
}

impl Exchange {
    /// Makes an exchange without data, or with `data` in this direction, that was never sent.
    pub(crate) const fn new(
        tag: u64,
        work: Work,
        direction: Direction,
        data: Option<IoSlice>,
    ) -> Self {
        Self {
            tag,
            work,
            direction,
            data,
            lent: false,
            timeouts: 0,
            retries: 0,
            replayed: false,
            given_up: None,
            detached: false,
            limit: Time::NEVER,
            held: false,
        }
    }

    /// Makes an exchange of an admin command.
    pub(crate) fn admin(tag: u64, command: Command, data_in: Option<IoSlice>) -> Self {
        let direction = if data_in.is_some() {
            Direction::In
        } else {
            Direction::None
        };
        Self::new(tag, Work::Admin(Box::new(command)), direction, data_in)
    }

    /// Bounds the wait for an older write that was given up, unless the submitter has set a limit.
    pub(crate) fn hold_until(&mut self, limit: Time) {
        if self.limit == Time::NEVER {
            self.limit = limit;
            self.held = true;
        }
    }

    /// Lifts the bound of that wait.
    pub(crate) fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.limit = Time::NEVER;
        }
    }

    /// Returns the command over extents, if it is one.
    #[inline]
    pub(crate) fn extents(&self) -> Option<&ExtentsRequest> {
        match &self.work {
            Work::Extents(request) => Some(request),
            Work::Block(_) | Work::Admin(_) => None,
        }
    }

    /// Returns the operation on blocks, if it is one.
    #[inline]
    pub(crate) fn operation(&self) -> Option<Operation> {
        match &self.work {
            Work::Block(request) => Some(request.operation),
            Work::Extents(request) => Some(request.command.operation),
            Work::Admin(_) => None,
        }
    }

    /// Returns the NSID, or `None` if the command has none.
    pub(crate) fn nsid(&self) -> Option<u32> {
        match &self.work {
            Work::Block(request) => Some(request.nsid),
            Work::Extents(request) => Some(request.nsid),
            Work::Admin(_) => None,
        }
    }

    /// Returns the number of the namespace in its channel, or `None` for admin commands.
    #[inline]
    pub(crate) fn namespace(&self) -> Option<u16> {
        match &self.work {
            Work::Block(request) => Some(request.namespace),
            Work::Extents(request) => Some(request.namespace),
            Work::Admin(_) => None,
        }
    }

    /// Returns the blocks that its request writes.
    #[inline]
    pub(crate) fn written(&self) -> impl Iterator<Item = Span> + '_ {
        let writes = self.operation().is_some_and(Operation::is_write);
        let block = self.request().filter(|_| writes);
        let extents = self.extents().filter(|_| writes);
        let extents = extents.into_iter().flat_map(ExtentsRequest::spans);
        block.map(BlockRequest::span).into_iter().chain(extents)
    }

    /// Takes the data back from sends. Returns false while a send still reads it, unless it had
    /// other owners when it was submitted.
    #[inline]
    pub(crate) fn reclaim(&mut self) -> bool {
        let mut reclaimed = true;
        if let Some(data) = self.data.take() {
            let data = data.into_exclusive().unwrap_or_else(|shared| {
                // It cannot change while a send still reads it.
                reclaimed = self.lent;
                shared
            });
            self.data = Some(data);
        }
        if let Work::Extents(request) = &mut self.work {
            reclaimed &= request.reclaim();
        }
        reclaimed
    }

    /// Returns another slice of `length` bytes from `offset` of the data requested by R2Ts, which
    /// sends share.
    pub(crate) fn duplicate(&self, offset: u32, length: u32) -> Option<IoSlice> {
        match &self.work {
            Work::Extents(request) => request.duplicate(offset, length as usize),
            _ => self
                .data
                .as_ref()?
                .duplicate(offset as usize, length as usize),
        }
    }

    /// Returns the block request; `None` for admin commands and commands over extents.
    #[inline]
    pub(crate) fn request(&self) -> Option<&BlockRequest> {
        match &self.work {
            Work::Block(request) => Some(request),
            Work::Admin(_) | Work::Extents(_) => None,
        }
    }

    /// If it is an extent sent as a separate command: returns the number of the command over
    /// extents, and the extent's first block.
    pub(crate) fn extent(&self) -> Option<(NonZeroU16, Lba)> {
        let request = self.request()?;
        let number = request.extent_of?;
        Some((number, Lba(request.span().start)))
    }

    /// Changes to another command of the same block request, with the data of that part.
    pub(crate) fn change_part(&mut self, change: impl FnOnce(&mut BlockRequest)) {
        let Work::Block(request) = &mut self.work else {
            return;
        };
        let before = *request;
        change(request);
        let Some(mut data) = self.data.take() else {
            return;
        };
        if request.private_data {
            data.copy_in(0, &request.range().to_bytes());
        } else {
            let block_bytes = data.len() / before.blocks as usize;
            let start = data.offset() - before.blocks_done as usize * block_bytes;
            let offset = start + request.blocks_done as usize * block_bytes;
            let length = request.blocks as usize * block_bytes;
            data = IoSlice::new(data.into_memory(), offset, length);
        }
        self.data = Some(data);
    }

    /// Takes the submitter's data out: that of the whole request, whichever part the command is.
    pub(crate) fn take_data(&mut self) -> Option<IoSlice> {
        self.change_part(BlockRequest::restart);
        let private = self.request().is_some_and(|request| request.private_data);
        self.data.take().filter(|_| !private)
    }

    /// Returns true if its success requires that all its data was moved. Deallocate is only a hint,
    /// so a controller need not read its range. A received message of authentication may be shorter
    /// than its memory.
    pub(crate) fn needs_data(&self) -> bool {
        match &self.work {
            Work::Block(request) => request.operation != Operation::Deallocate,
            Work::Extents(_) => true,
            Work::Admin(command) => {
                !command.is_fabrics()
                    || command.fabrics_type() != FabricsType::AUTHENTICATION_RECEIVE
            }
        }
    }

    /// Returns the bytes of data, without the table of a command over extents.
    pub(crate) fn data_bytes(&self) -> usize {
        if let Work::Extents(request) = &self.work {
            return request.data_bytes();
        }
        self.data.as_ref().map_or(0, IoSlice::len)
    }
}
