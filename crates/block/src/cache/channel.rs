//! A channel of a cache: the requests of one thread, and their I/O.

use super::pending::{Pending, Phase};
use super::table::{Claim, Found, Frame, PAGE_BYTES, PLAN_PAGES_MAX};
use super::transfers::{Io, Transfers};
use super::{Bell, Cache, CacheState, SharedCache};
use crate::device::copy::{copy_from_region, copy_to_region};
use crate::device::{Capabilities, Channel, Device, DeviceError, Geometry, Submit, check_memory};
use crate::limits::CACHE_QUEUE_DEPTH;
use crate::request::{BlockError, Completion, Operation, Request};
use base::units::Lba;
use base::{Nanos, Slab, SlabKey, Time};
use reactor::{Context, Driver, Guard, IoSlice, RegionHandle};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use switch::ReadAhead;

mod ends;
mod reads;
mod write_back;
mod writes;

/// Time for which a channel does not write back on its own after a failure, and interval between
/// two checks for pages older than `dirty_expire`.
const RETRY_PAUSE: Nanos = Nanos::from_millis(100);

/// Stage of a channel's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// Accepts no requests; outstanding ones continue.
    Draining,
    /// The last channel writes back the dirty pages up to an epoch.
    Saving(u64),
    /// The channels below are closing.
    Closing,
}

/// The next step for a page of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageStep {
    Done,
    /// Another transfer or claim must end first.
    Wait,
    /// The page must be read, and no memory is free for it.
    NoMemory,
    /// The page must be read; it has a frame that waits for it, or none.
    Read {
        framed: bool,
    },
    /// The write bypasses the cache.
    Bypass,
}

/// One thread's channel.
#[derive(Debug)]
pub(super) struct CacheChannel {
    shared: Arc<SharedCache>,
    region: RegionHandle,
    bell: Arc<Bell>,
    geometry: Geometry,
    capabilities: Capabilities,
    /// Number of resizes of the device before the channel was opened.
    resizes: u64,
    transfers: Transfers,
    pendings: Slab<Pending>,
    /// Requests that are not complete, in order of arrival.
    live: Vec<SlabKey>,
    /// Number of writes among them.
    writes: u32,
    /// Finished requests; a Flush with the number of cache losses known when it completed.
    finished: VecDeque<(SlabKey, Option<u32>, Completion)>,
    /// The losses of the last reaped Flush.
    losses: Option<u32>,
    read_ahead: ReadAhead,
    /// Dirty pages to be written back, in ascending order; the next one is at index `plan_at`. At
    /// most [`PLAN_PAGES_MAX`].
    plan: Vec<u64>,
    plan_at: usize,
    /// True if the last plan for expired pages had no room for all of them.
    is_plan_cut: bool,
    scratch: Vec<(u64, Frame)>,
    paused_until: Time,
    /// Time before which it does not check for expired dirty pages.
    next_look: Time,
    /// Number of failed write-backs that its Flushes have reported.
    errors_seen: u64,
    /// True if the device below is gone and not [back](Channel::is_back).
    gone: bool,
    stage: Stage,
}

impl CacheChannel {
    pub(super) fn open(cache: &Cache, driver: &mut dyn Driver) -> Result<Self, DeviceError> {
        // Read before the channels below are opened: a channel from before a resize must not count
        // as new.
        let resizes = cache.shared.resizes.load(Ordering::Relaxed);
        let below = cache.below.open(driver)?;
        let write_back = match &cache.write_back {
            Some(device) => Some(device.open(driver)?),
            None => None,
        };
        let shared = Arc::clone(&cache.shared);
        let transfers = Transfers::new(below, write_back, cache.piece_bytes())?;
        let bell = Arc::new(Bell::new(driver.waker()));
        let mut state = shared.lock();
        state.open.push(Arc::clone(&bell));
        state.channels += 1;
        let errors_seen = state.reported;
        drop(state);
        Ok(Self {
            region: shared.region.handle(),
            bell,
            geometry: cache.geometry(),
            capabilities: cache.capabilities(),
            resizes,
            pendings: Slab::with_capacity(CACHE_QUEUE_DEPTH),
            live: Vec::with_capacity(CACHE_QUEUE_DEPTH),
            writes: 0,
            finished: VecDeque::with_capacity(CACHE_QUEUE_DEPTH),
            losses: transfers.losses(),
            transfers,
            read_ahead: ReadAhead::new(shared.options.read_ahead),
            plan: Vec::with_capacity(PLAN_PAGES_MAX),
            plan_at: 0,
            is_plan_cut: false,
            scratch: Vec::new(),
            paused_until: Time::ZERO,
            next_look: Time::ZERO,
            errors_seen,
            gone: false,
            stage: Stage::Open,
            shared,
        })
    }

    /// Returns the error of an invalid request, or `None`.
    fn refuse(&self, request: &mut Request) -> Option<BlockError> {
        if self.stage != Stage::Open || self.is_stale() {
            return Some(BlockError::Aborted);
        }
        if self.gone {
            return Some(BlockError::Gone);
        }
        check_memory(request, self.geometry, self.capabilities).err()
    }

    fn pending(&mut self, key: SlabKey) -> &mut Pending {
        self.pendings.get_mut(key).expect("the request is not over")
    }

    /// Returns true if a request has to wait for an earlier one.
    fn is_held(&self, key: SlabKey) -> bool {
        let later = self.pendings.get(key).expect("the request is not over");
        if self.writes == 0 {
            return false;
        }
        let earlier = self.live.iter().take_while(|other| **other != key);
        let mut earlier = earlier.filter_map(|other| self.pendings.get(*other));
        earlier.any(|other| other.conflicts(later))
    }

    /// Returns true if the device was resized since the channel was opened. The channels below may
    /// then refer to memory that no longer belongs to the device.
    fn is_stale(&self) -> bool {
        self.resizes != self.shared.resizes.load(Ordering::Relaxed)
    }

    /// Returns the length of a page in bytes; the last page of the device may be shorter.
    fn page_bytes(&self, page: u64) -> usize {
        let rest = self.geometry.bytes() - page * PAGE_BYTES as u64;
        usize::try_from(rest).map_or(PAGE_BYTES, |rest| rest.min(PAGE_BYTES))
    }

    /// Makes a request for pages of the device, with the start of `memory` as its data.
    fn page_request(&self, operation: Operation, pages: &Range<u64>, memory: &IoSlice) -> Request {
        let block = u64::from(self.geometry.block_bytes);
        let page = PAGE_BYTES as u64;
        let end = (pages.end * page).min(self.geometry.bytes());
        let bytes = end - pages.start * page;
        let len = usize::try_from(bytes).expect("a transfer's length");
        Request {
            tag: 0,
            operation,
            lba: Lba(pages.start * page / block),
            blocks: u32::try_from(bytes / block).expect("a transfer's length"),
            data: memory.duplicate(0, len),
        }
    }

    /// Advances a request as far as possible without waiting.
    fn advance(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let pending = self.pending(key);
        pending.waits = false;
        if pending.phase == Phase::Held {
            if self.is_held(key) {
                self.pending(key).waits = true;
                return;
            }
            self.begin(key);
        }
        let pending = self.pending(key);
        match pending.phase {
            Phase::Cached if pending.result.is_err() || pending.left == 0 => {}
            Phase::Cached if pending.operation == Operation::Read => self.advance_read(key, cx),
            Phase::Cached => self.advance_write(key, cx),
            Phase::Claiming => self.advance_claim(key, cx),
            Phase::Saving(epoch) => self.advance_saving(key, epoch, cx),
            Phase::Flushing(epoch) => {
                let mut state = self.shared.lock();
                if state.table.is_saved(epoch) {
                    drop(state);
                    self.pass(key, cx);
                } else {
                    // The last write-back may end on another thread before this one sleeps.
                    state.block(&self.bell);
                    drop(state);
                    self.pending(key).waits = true;
                    self.transfers.unplug(cx);
                }
            }
            Phase::Held | Phase::Below => {}
        }
        self.finish_if_over(key);
    }

    fn begin(&mut self, key: SlabKey) {
        let shared = Arc::clone(&self.shared);
        let pending = self.pending(key);
        pending.phase = match pending.operation {
            Operation::Read | Operation::Write { durable: false } => Phase::Cached,
            Operation::Write { durable: true }
            | Operation::WriteZeroes { .. }
            | Operation::Deallocate => Phase::Claiming,
            Operation::Compare | Operation::Verify => {
                Phase::Saving(shared.lock().table.end_epoch())
            }
            Operation::Flush => {
                let mut state = shared.lock();
                pending.errors = state.errors;
                Phase::Flushing(state.table.end_epoch())
            }
        };
    }

    /// Claims the range of a request, waits until none of its pages is in transfer, and passes the
    /// request down.
    fn advance_claim(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let shared = Arc::clone(&self.shared);
        let bell = Arc::clone(&self.bell);
        let pending = self.pending(key);
        let range = pending.pages();
        let mut state = shared.lock();
        if pending.claim.is_none() {
            pending.claim = state.table.claim(&range);
        }
        if pending.claim.is_none() || !state.table.is_quiet(&range) {
            state.block(&bell);
            drop(state);
            pending.waits = true;
            self.transfers.unplug(cx);
            return;
        }
        drop(state);
        self.pass(key, cx);
    }

    /// Passes a request down, once its range is written back.
    fn advance_saving(&mut self, key: SlabKey, epoch: u64, cx: &mut Context<'_>) {
        let range = self.pending(key).pages();
        let mut pages = Vec::new();
        let mut state = self.shared.lock();
        match state.table.range_saved(epoch, &range) {
            Ok(true) => {
                drop(state);
                self.pass(key, cx);
            }
            Ok(false) => {
                state.table.collect_range(epoch, &range, &mut pages);
                state.block(&self.bell);
                drop(state);
                pages.sort_unstable();
                self.pending(key).waits = true;
                self.transfers.unplug(cx);
                self.write_back(&pages, true, cx);
            }
            Err(()) => {
                let error = state.last_error;
                drop(state);
                let pending = self.pending(key);
                pending.result = Err(error);
                pending.phase = Phase::Below;
            }
        }
    }

    fn pass(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let pending = self.pending(key);
        pending.phase = Phase::Below;
        pending.ios += 1;
        let request = Request {
            tag: 0,
            operation: pending.operation,
            lba: pending.lba,
            blocks: pending.blocks,
            data: pending.data.take(),
        };
        let io = Io::Pass { key, losses: None };
        self.transfers.submit(io, false, request, cx);
    }

    /// Completes a request that has nothing left to do.
    fn finish_if_over(&mut self, key: SlabKey) {
        let pending = self.pending(key);
        let over = match pending.phase {
            Phase::Cached => pending.result.is_err() || pending.left == 0,
            phase => phase == Phase::Below,
        };
        if !over || pending.ios > 0 {
            return;
        }
        let pending = self.pendings.remove(key).expect("the request is not over");
        self.live.retain(|other| *other != key);
        self.writes -= u32::from(pending.operation.is_write());
        let completion = Completion {
            tag: pending.tag,
            result: pending.result,
            data: pending.data,
        };
        self.finished.push_back((key, pending.losses, completion));
    }

    /// Returns the finished request at this index.
    fn take_finished(&mut self, at: usize) -> Option<Completion> {
        let (_, losses, completion) = self.finished.remove(at)?;
        self.losses = losses.or(self.losses);
        Some(completion)
    }

    /// Advances all requests that wait for more than their own transfers.
    fn advance_all(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(&key) = self.live.get(index) {
            if self.pending(key).waits {
                self.advance(key, cx);
            }
            if self.live.get(index) == Some(&key) {
                index += 1;
            }
        }
    }

    fn settle(&mut self, cx: &mut Context<'_>) {
        while let Some((io, completion)) = self.transfers.take_done() {
            self.end(io, completion, cx);
        }
    }

    /// Does all the work that is possible now.
    fn run(&mut self, cx: &mut Context<'_>) {
        self.bell.answer();
        self.transfers.turn(cx);
        self.gone &= !self.transfers.is_back();
        loop {
            self.settle(cx);
            self.advance_all(cx);
            self.drive(cx);
            self.transfers.kick(cx);
            if !self.transfers.has_done() {
                break;
            }
        }
        self.close_if_idle(cx);
    }

    fn close_if_idle(&mut self, cx: &mut Context<'_>) {
        let idle = self.live.is_empty() && self.transfers.is_idle();
        if self.stage == Stage::Draining && idle {
            let mut state = self.shared.lock();
            self.stage = Stage::Saving(0);
            // A stale channel leaves the dirty pages to the next channel.
            if state.leave(&self.bell) && !self.is_stale() {
                self.stage = Stage::Saving(state.table.end_epoch());
            }
            drop(state);
            self.drive(cx);
            self.transfers.kick(cx);
            if self.transfers.has_done() {
                return self.run(cx);
            }
        }
        if let Stage::Saving(epoch) = self.stage {
            let saved = self.shared.lock().table.is_saved(epoch);
            if saved && self.transfers.is_idle() {
                self.stage = Stage::Closing;
                self.transfers.close(cx);
            }
        }
    }
}

impl Channel for CacheChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if let Some(error) = self.refuse(&mut request) {
            return Submit::Done(request.ended(Err(error)));
        }
        if self.pendings.is_full() || self.finished.len() >= CACHE_QUEUE_DEPTH {
            return Submit::Busy(request);
        }
        let pending = Pending::new(request, self.geometry.block_bytes);
        let (pages, reads) = (pending.pages(), pending.operation == Operation::Read);
        let writes = pending.operation.is_write();
        let Ok(key) = self.pendings.insert(pending) else {
            unreachable!("it was asked whether there is room");
        };
        self.live.push(key);
        self.writes += u32::from(writes);
        self.advance(key, cx);
        if reads {
            self.look_ahead(pages, cx);
        }
        self.settle(cx);
        let at = self.finished.iter().rposition(|(other, ..)| *other == key);
        match at.and_then(|at| self.take_finished(at)) {
            Some(done) => Submit::Done(done),
            None => Submit::Queued,
        }
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.run(cx);
    }

    fn owns(&self, op_namespace: reactor::OpNamespace) -> bool {
        self.transfers.owns(op_namespace)
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.transfers.complete(completion, cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.take_finished(0)
    }

    fn losses(&self) -> Option<u32> {
        self.losses
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.run(cx);
    }

    fn is_back(&self) -> bool {
        !self.gone
    }

    fn deadline(&self) -> Time {
        let closing = self.stage == Stage::Closing;
        if !self.finished.is_empty() || (!closing && !self.bell.may_sleep()) {
            return Time::ZERO;
        }
        self.transfers.deadline().min(self.next_expiry())
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if self.stage == Stage::Open {
            self.stage = Stage::Draining;
        }
        self.run(cx);
    }

    fn closed(&self) -> bool {
        self.stage == Stage::Closing && self.transfers.closed()
    }

    fn abandon(&mut self, guard: &Guard) {
        self.transfers.abandon(guard);
    }
}
