//! A command with its data, on its way to the controller and back.

use crate::command::BlockRequest;
use crate::command::extents::ExtentsRequest;
use crate::recovery::span::Span;
use base::Time;
use base::units::Lba;
use block::{BlockError, Operation};
use reactor::IoSlice;
use std::num::NonZeroU16;
use wire::nvme::Command;

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// There is none.
    None,
    /// From the controller.
    In,
    /// To the controller.
    Out,
}

/// A command with its data, on its way to the controller and back.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The submitter's name for it.
    pub(crate) tag: u64,
    /// The command or request.
    pub(crate) work: Work,
    /// Which way the data goes.
    pub(crate) direction: Direction,
    /// The data: as long as the command asks for, a part of what the submitter gave where the request
    /// takes several commands; shared while it is being sent.
    pub(crate) data: Option<IoSlice>,
    /// The data had other owners when it was submitted, and may have them when it goes back.
    pub(crate) lent: bool,
    /// Number of time-outs so far.
    pub(crate) timeouts: u8,
    /// Number of times that it was sent again because the controller asked for that.
    pub(crate) retries: u8,
    /// It was lost with a connection: its range is locked against newer writes.
    pub(crate) replayed: bool,
    /// The submitter gave it up, and is told this unless the controller's answer comes first.
    pub(crate) given_up: Option<BlockError>,
    /// The submitter was told so, and has its memory: only the controller's answer is missing.
    pub(crate) detached: bool,
    /// Time at which it is given up.
    pub(crate) limit: Time,
    /// `limit` is not the submitter's: it bounds the wait for an older write to its blocks that was
    /// given up, and does not count any more when that is over.
    pub(crate) held: bool,
}

/// Content of a command. Its identifier and data pointer are set when it is sent.
#[derive(Debug)]
pub(crate) enum Work {
    /// Anything, ready to be sent.
    Admin(Box<Command>),
    /// A block request, of which the command is made when it is sent: it is smaller, and the table
    /// of a deep queue has to stay in the cache.
    Block(BlockRequest),
    /// A command over extents; the exchange's data is what its capsule carries.
    Extents(Box<ExtentsRequest>),
}

impl Exchange {
    /// That moves no data, or moves `data` this way, and was never sent.
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

    /// An admin command.
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

    /// Returns the NSID, where there is one.
    pub(crate) fn nsid(&self) -> Option<u32> {
        match &self.work {
            Work::Block(request) => Some(request.nsid),
            Work::Extents(request) => Some(request.nsid),
            Work::Admin(_) => None,
        }
    }

    /// Returns the number of the namespace in its channel, where there are blocks.
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

    /// Takes the data back from sends. Returns false while one still reads it, unless it had other
    /// owners to begin with.
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

    /// Returns another slice of the data that R2Ts ask for, and which sends share: from `offset` on,
    /// `length` bytes.
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

    /// Returns the number of the command of which it is an extent that leaves alone, and the extent's
    /// first block.
    pub(crate) fn extent(&self) -> Option<(NonZeroU16, Lba)> {
        let request = self.request()?;
        let number = request.extent_of?;
        Some((number, Lba(request.span().start)))
    }

    /// Makes the command another one of its block request, with the data of that part.
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

    /// Takes the submitter's data out: that of the whole request, of whichever part the command is.
    pub(crate) fn take_data(&mut self) -> Option<IoSlice> {
        self.change_part(BlockRequest::restart);
        let private = self.request().is_some_and(|request| request.private_data);
        self.data.take().filter(|_| !private)
    }

    /// Returns true if its success means that all its data was moved: Deallocate only advises, and
    /// a controller need not look at its range.
    pub(crate) fn needs_data(&self) -> bool {
        let request = self.request();
        request.is_none_or(|request| request.operation != Operation::Deallocate)
    }

    /// Bytes of data, without the table of a command over extents.
    pub(crate) fn data_bytes(&self) -> usize {
        if let Work::Extents(request) = &self.work {
            return request.data_bytes();
        }
        self.data.as_ref().map_or(0, IoSlice::len)
    }
}
