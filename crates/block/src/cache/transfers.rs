//! Transfers: the I/O of one channel of a cache to the devices below.
//!
//! Data goes through memory of the channel, so that adjacent pages of the device are transferred in
//! one request wherever their frames are, and a page can be written while its earlier content is in
//! transfer to the device.

use crate::device::{Channel, DeviceError, Dropped, Submit};
use crate::limits::{CACHE_QUEUE_DEPTH, CACHE_READS, CACHE_WRITES};
use crate::request::{Completion, Request};
use crate::submitter_memory::SubmitterMemory;
use base::{Slab, SlabKey, Time};
use reactor::{Context, Guard, IoSlice, OpNamespace};
use std::collections::VecDeque;
use std::ops::Range;

/// Purpose of a transfer.
#[derive(Clone, Debug)]
pub(super) enum Io {
    /// Reads pages.
    Read {
        pages: Range<u64>,
        /// True if they have frames, which are filled.
        framed: bool,
        /// The request that needs them; `None` for read-ahead.
        key: Option<SlabKey>,
    },
    /// Writes dirty pages back.
    WriteBack { pages: Range<u64> },
    /// Passes a request down.
    Pass {
        key: SlabKey,
        /// The channel's [losses](Channel::losses) when it completed.
        losses: Option<u32>,
    },
}

/// I/O of one channel.
#[derive(Debug)]
pub(super) struct Transfers {
    below: Box<dyn Channel>,
    /// Channel for write-back, if it is a separate one.
    write_back: Option<Box<dyn Channel>>,
    ios: Slab<Io>,
    /// Requests that a channel below had no room for; true for write-back.
    unsent: VecDeque<(bool, Request)>,
    done: VecDeque<(Io, Completion)>,
    reads: SubmitterMemory,
    writes: SubmitterMemory,
    piece_bytes: usize,
    submitted: bool,
}

impl Transfers {
    pub(super) fn new(
        below: Box<dyn Channel>,
        write_back: Option<Box<dyn Channel>>,
        piece_bytes: usize,
    ) -> Result<Self, DeviceError> {
        let capacity = CACHE_QUEUE_DEPTH + (CACHE_READS + CACHE_WRITES) as usize;
        Ok(Self {
            below,
            write_back,
            ios: Slab::with_capacity(capacity),
            unsent: VecDeque::with_capacity(capacity),
            done: VecDeque::with_capacity(capacity),
            reads: SubmitterMemory::new(CACHE_READS, piece_bytes)?,
            writes: SubmitterMemory::new(CACHE_WRITES, piece_bytes)?,
            piece_bytes,
            submitted: false,
        })
    }

    /// Allocates memory for one read; `None` while all is in use.
    pub(super) fn read_memory(&mut self) -> Option<IoSlice> {
        self.reads.lend(self.piece_bytes)
    }

    /// Allocates memory for one write; `None` while all is in use.
    pub(super) fn write_memory(&mut self) -> Option<IoSlice> {
        self.writes.lend(self.piece_bytes)
    }

    /// Returns the number of pages of the largest transfer.
    pub(super) fn most_pages(&self) -> u64 {
        (self.piece_bytes / super::table::PAGE_BYTES) as u64
    }

    /// Starts a transfer; memory and the channel's depth limit their number. `by_write_back` for
    /// pages that no request waits for, which the device may gather.
    pub(super) fn submit(
        &mut self,
        io: Io,
        by_write_back: bool,
        mut request: Request,
        cx: &mut Context<'_>,
    ) {
        let Ok(key) = self.ios.insert(io) else {
            unreachable!("there are as many slots as transfers can be under way");
        };
        request.tag = key.tag();
        self.send(by_write_back, request, cx);
    }

    fn send(&mut self, by_write_back: bool, request: Request, cx: &mut Context<'_>) {
        if !self.unsent.is_empty() {
            self.unsent.push_back((by_write_back, request));
            return;
        }
        if let Some((by_write_back, request)) = self.try_send(by_write_back, request, cx) {
            self.unsent.push_back((by_write_back, request));
        }
    }

    /// Sends a request; returns it if the channel has no room.
    fn try_send(
        &mut self,
        by_write_back: bool,
        request: Request,
        cx: &mut Context<'_>,
    ) -> Option<(bool, Request)> {
        self.submitted = true;
        let submit = match &mut self.write_back {
            Some(channel) if by_write_back => channel.submit(request, cx),
            _ => self.below.submit(request, cx),
        };
        match submit {
            Submit::Done(completion) => self.end(completion),
            Submit::Queued => {}
            Submit::Busy(request) => return Some((by_write_back, request)),
        }
        None
    }

    fn end(&mut self, completion: Completion) {
        let io = self.ios.remove(SlabKey::from_tag(completion.tag));
        let mut io = io.expect("a transfer ends once");
        if let Io::Pass { losses, .. } = &mut io {
            *losses = self.below.losses();
        }
        self.done.push_back((io, completion));
    }

    /// Returns the channels below.
    fn channels(&self) -> impl Iterator<Item = &Box<dyn Channel>> {
        [&self.below].into_iter().chain(&self.write_back)
    }

    /// Returns the channels below, for running them.
    fn channels_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Channel>> {
        [&mut self.below].into_iter().chain(&mut self.write_back)
    }

    fn collect(&mut self) {
        let reap = |this: &mut Self| this.channels_mut().find_map(|channel| channel.reap());
        while let Some(completion) = reap(self) {
            self.end(completion);
        }
    }

    /// Runs the channels below, and collects the completed transfers.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        self.channels_mut().for_each(|channel| channel.tick(cx));
        self.collect();
        while let Some((by_write_back, request)) = self.unsent.pop_front() {
            if let Some(back) = self.try_send(by_write_back, request, cx) {
                self.unsent.push_front(back);
                break;
            }
        }
    }

    /// Makes the device below send the plugged pages, including those of other channels.
    pub(super) fn unplug(&mut self, cx: &mut Context<'_>) {
        if let Some(channel) = &mut self.write_back {
            channel.unplug(cx);
            self.submitted = true;
        }
    }

    /// Sends the gathered requests.
    pub(super) fn kick(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.submitted) {
            return;
        }
        self.channels_mut().for_each(|channel| channel.kick(cx));
        self.collect();
    }

    /// Takes a completed transfer.
    pub(super) fn take_done(&mut self) -> Option<(Io, Completion)> {
        self.done.pop_front()
    }

    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Losses of the device's cache, as [`Channel::losses`] of the channel to which requests are
    /// passed down.
    pub(super) fn losses(&self) -> Option<u32> {
        self.below.losses()
    }

    /// Returns true if all channels below are back, as [`Channel::is_back`].
    pub(super) fn is_back(&self) -> bool {
        self.channels().all(|channel| channel.is_back())
    }

    /// Returns true if no transfer is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.ios.is_empty() && self.done.is_empty()
    }

    /// Returns the transfers in flight.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &Io> {
        let done = self.done.iter().map(|(io, _)| io);
        self.ios.iter().map(|(_, io)| io).chain(done)
    }

    /// As [`Channel::abandon`].
    pub(super) fn abandon(&mut self, guard: &Guard) {
        self.channels_mut()
            .for_each(|channel| channel.abandon(guard));
    }

    /// Drops the channels below, which close the blocks that requests in flight may still write.
    pub(super) fn drop_channels(&mut self) {
        self.below = Box::new(Dropped);
        self.write_back = None;
    }

    pub(super) fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.channels().any(|channel| channel.owns(op_namespace))
    }

    pub(super) fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        match &mut self.write_back {
            Some(channel) if channel.owns(completion.key.op_namespace) => {
                channel.complete(completion, cx);
            }
            _ => self.below.complete(completion, cx),
        }
    }

    pub(super) fn deadline(&self) -> Time {
        if self.has_done() {
            return Time::ZERO;
        }
        let deadlines = self.channels().map(|channel| channel.deadline());
        deadlines.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        self.channels_mut().for_each(|channel| channel.close(cx));
    }

    pub(super) fn closed(&self) -> bool {
        self.channels().all(|channel| channel.closed())
    }
}
