//! Ends of transfers: the effect of each on the pages and on its request.

use super::writes::write_frame;
use super::{BlockError, CacheChannel, Completion, Context, Frame, Io, Operation, PAGE_BYTES};
use super::{CacheState, Claim, Guard, Phase, RETRY_PAUSE, SharedCache, SlabKey, Stage, Time};
use super::{copy_from_region, copy_to_region};
use reactor::{IoSlice, RegionHandle};
use std::ops::Range;
use std::sync::Arc;

impl CacheChannel {
    /// Handles a completed transfer.
    pub(super) fn end(&mut self, io: Io, completion: Completion, cx: &mut Context<'_>) {
        self.gone |= completion.result == Err(BlockError::Gone);
        match io {
            Io::Read { pages, framed, key } => {
                match (completion.result, completion.data) {
                    (Ok(()), Some(data)) => self.read_done(&pages, framed, key, &data, cx.now),
                    (result, _) => self.read_failed(&pages, framed, key, result),
                }
                if framed {
                    self.shared.lock().wake();
                }
                if let Some(key) = key {
                    self.pending(key).ios -= 1;
                    self.advance(key, cx);
                }
            }
            Io::WriteBack { pages } => {
                self.write_back_done(&pages, completion.result, cx.now);
                if completion.result.is_err() {
                    self.paused_until = cx.now + RETRY_PAUSE;
                }
            }
            Io::Pass { key, losses } => self.pass_done(key, losses, completion),
        }
    }

    fn read_done(
        &mut self,
        pages: &Range<u64>,
        framed: bool,
        key: Option<SlabKey>,
        data: &IoSlice,
        now: Time,
    ) {
        for (index, page) in pages.clone().enumerate() {
            let from = index * PAGE_BYTES;
            if framed {
                self.fill(page, key, data, from, now);
            }
            let Some(key) = key else { continue };
            let pending = self.pending(key);
            if pending.operation != Operation::Read {
                continue;
            }
            let part = pending.overlap(page);
            pending.left -= 1;
            let out = pending.data.as_mut().expect("a read has data");
            copy_slice(data, from + part.in_page, out, part.in_data, part.len);
        }
    }

    /// Fills a page. If it was read for a write, the data is written into it in the same step,
    /// because another channel must not evict or claim it in between.
    fn fill(&mut self, page: u64, key: Option<SlabKey>, data: &IoSlice, from: usize, now: Time) {
        let bytes = self.page_bytes(page);
        let mut state = self.shared.lock();
        let frame = state.table.filled(page, key.is_some());
        let frame = frame.expect("it was being filled");
        let at = frame as usize * PAGE_BYTES;
        copy_to_region(data, from, &self.region, at, bytes);
        self.region.zero(at + bytes, PAGE_BYTES - bytes);
        let Some(pending) = key.and_then(|key| self.pendings.get_mut(key)) else {
            return;
        };
        if matches!(pending.operation, Operation::Write { .. })
            && !write_frame(&mut state, &self.region, pending, page, frame, now)
        {
            pending.bypass = true;
        }
    }

    fn read_failed(
        &mut self,
        pages: &Range<u64>,
        framed: bool,
        key: Option<SlabKey>,
        result: Result<(), BlockError>,
    ) {
        if framed {
            let mut state = self.shared.lock();
            pages.clone().for_each(|page| state.table.forget(page));
        }
        let Some(key) = key else { return };
        let error = result.err().unwrap_or(BlockError::Internal);
        let pending = self.pending(key);
        // A write that must read the rest of a page fails as a write.
        let failed = match (pending.operation, error) {
            (Operation::Write { .. }, BlockError::ReadFailure) => BlockError::WriteFailure,
            _ => error,
        };
        pending.result = Err(failed);
    }

    fn write_back_done(&mut self, pages: &Range<u64>, result: Result<(), BlockError>, now: Time) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        for page in pages.clone() {
            state.table.end_write_back(page, result.is_ok(), now);
        }
        let count = pages.end - pages.start;
        match result {
            Ok(()) => state.counters.written_back += count,
            Err(error) => {
                state.counters.failed += count;
                state.errors += 1;
                state.last_error = error;
            }
        }
        state.wake();
    }

    fn pass_done(&mut self, key: SlabKey, losses: Option<u32>, completion: Completion) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let pending = self.pendings.get_mut(key).expect("the request is not over");
        pending.ios -= 1;
        pending.data = completion.data;
        pending.result = completion.result;
        pending.losses = losses.filter(|_| pending.operation == Operation::Flush);
        if let Some(claim) = pending.claim.take() {
            self.agree(key, &mut state);
            state.table.release(claim);
            state.wake();
        } else if pending.operation == Operation::Flush && completion.result.is_ok() {
            // Another Flush may have reported a failure that occurred during both.
            if state.errors > self.errors_seen.min(pending.errors) {
                pending.result = Err(state.last_error);
            }
            self.errors_seen = state.errors;
            state.reported = state.reported.max(state.errors);
        }
        drop(state);
        self.finish_if_over(key);
    }

    /// Updates the cache after a request that was passed down. After a failure, and after a
    /// Deallocate, the content below is unknown: clean pages are dropped, and dirty ones will be
    /// written back.
    fn agree(&mut self, key: SlabKey, state: &mut CacheState) {
        let pending = self.pendings.get(key).expect("the request is not over");
        if pending.result.is_err() {
            return state.table.forget_saved(&pending.pages());
        }
        let mut cached = std::mem::take(&mut self.scratch);
        cached.clear();
        cached.extend(state.table.cached(&pending.pages()));
        for &(page, frame) in &cached {
            let part = pending.overlap(page);
            let whole = part.len == self.page_bytes(page);
            let at = frame as usize * PAGE_BYTES + part.in_page;
            let is_known = pending.operation != Operation::Deallocate;
            match &pending.data {
                Some(data) => {
                    copy_to_region(data, part.in_data, &self.region, at, part.len);
                    if whole {
                        state.table.clean(frame);
                    }
                }
                None if whole || !(is_known || state.table.is_unsaved(frame)) => {
                    state.table.forget(page);
                }
                None => self.region.zero(at, part.len),
            }
        }
        self.scratch = cached;
    }
}

/// Pages and claims of a channel that was dropped with outstanding work. Dropping this releases
/// them, once no transfer of the channel can take effect any more.
#[derive(Debug)]
struct Abandoned {
    shared: Arc<SharedCache>,
    ios: Vec<Io>,
    /// Claims, each with the pages of the request that was passed down.
    claims: Vec<(Claim, Option<Range<u64>>)>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        for io in &self.ios {
            match io {
                Io::Read {
                    pages,
                    framed: true,
                    ..
                } => pages.clone().for_each(|page| state.table.forget(page)),
                Io::WriteBack { pages } => {
                    for page in pages.clone() {
                        // There is no clock here: its age counts from the latest time that the
                        // table has seen.
                        state.table.end_write_back(page, false, Time::ZERO);
                    }
                    state.errors += 1;
                    state.last_error = BlockError::Aborted;
                }
                Io::Read { .. } | Io::Pass { .. } => {}
            }
        }
        for (claim, passed) in &self.claims {
            if let Some(pages) = passed {
                state.table.forget_saved(pages);
            }
            state.table.release(*claim);
        }
        state.channels -= 1;
        state.wake();
    }
}

impl Drop for CacheChannel {
    /// Releases all pages, claims and roles of a channel that is dropped with outstanding work.
    fn drop(&mut self) {
        let ios = self.transfers.under_way().cloned().collect();
        let pendings = self.pendings.iter_mut();
        let claims = pendings.filter_map(|(_, pending)| {
            let passed = pending.phase == Phase::Below;
            Some((pending.claim.take()?, passed.then(|| pending.pages())))
        });
        let guard: Guard = Arc::new(Abandoned {
            shared: Arc::clone(&self.shared),
            ios,
            claims: claims.collect(),
        });
        self.transfers.abandon(&guard);
        // Before the guard: a released page may be written again, and a transfer in flight must not
        // land after that.
        self.transfers.drop_channels();
        drop(guard);
        let mut state = self.shared.lock();
        state.resign(&self.bell);
        if matches!(self.stage, Stage::Open | Stage::Draining) {
            state.leave(&self.bell);
        }
        state.wake();
    }
}

/// Copies between two slices; the first is the memory of a transfer.
fn copy_slice(from: &IoSlice, at: usize, to: &mut IoSlice, to_at: usize, len: usize) {
    let mut piece = [0; PAGE_BYTES];
    let piece = &mut piece[..len];
    match to.bytes_mut() {
        Some(bytes) => from.copy_out(at, &mut bytes[to_at..to_at + len]),
        None => {
            from.copy_out(at, piece);
            to.copy_in(to_at, piece);
        }
    }
}

/// Copies a frame's page into the memory of a transfer.
pub(super) fn copy_page(region: &RegionHandle, frame: Frame, to: &mut IoSlice, at: usize) {
    copy_from_region(region, frame as usize * PAGE_BYTES, to, at, PAGE_BYTES);
}
