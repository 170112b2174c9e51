//! Writes into the cache.

use super::reads::Run;
use super::{CacheChannel, Context, Found, Frame, PAGE_BYTES, Pending, Phase, RegionHandle};
use super::{CacheState, PageStep, SlabKey, Time, copy_to_region};

impl CacheChannel {
    /// Writes into the pages that may be written, and starts the reads needed for partly written
    /// ones.
    pub(super) fn advance_write(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        for page in self.pending(key).pages() {
            let pending = self.pending(key);
            if pending.bypass {
                break;
            }
            if pending.is_taken(page) {
                continue;
            }
            match self.write_page(key, page, cx.now) {
                PageStep::Done => {}
                PageStep::Wait | PageStep::NoMemory => self.pending(key).waits = true,
                PageStep::Bypass => self.pending(key).bypass = true,
                PageStep::Read { framed } => {
                    let Some(memory) = self.transfers.read_memory() else {
                        let mut state = self.shared.lock();
                        state.table.forget(page);
                        // Another channel may have found the page being filled.
                        state.wake();
                        drop(state);
                        self.pending(key).waits = true;
                        continue;
                    };
                    self.pending(key).take(page);
                    let pages = page..page + 1;
                    let run = Run {
                        pages,
                        framed,
                        memory,
                    };
                    self.start(Some(run), Some(key), cx);
                }
            }
        }
        let pending = self.pending(key);
        if pending.bypass && pending.ios == 0 {
            pending.phase = Phase::Claiming;
            self.shared.lock().counters.bypassed += 1;
            self.advance_claim(key, cx);
        }
    }

    /// Writes into a page, if it may be written and all of its content is known afterwards.
    fn write_page(&mut self, key: SlabKey, page: u64, now: Time) -> PageStep {
        let whole = self.page_bytes(page);
        let pending = self.pendings.get_mut(key).expect("the request is not over");
        let mut state = self.shared.lock();
        if state.table.is_claimed(page) {
            state.block(&self.bell);
            return PageStep::Wait;
        }
        let frame = match state.table.find(page) {
            Found::Filling => {
                state.block(&self.bell);
                return PageStep::Wait;
            }
            Found::Frame(frame) => frame,
            Found::Missing if state.table.may_dirty(None) => {
                let Some(frame) = state.table.allocate(page) else {
                    return PageStep::Bypass;
                };
                if pending.overlap(page).len < whole {
                    return PageStep::Read { framed: true };
                }
                state.table.filled(page, true);
                let at = frame as usize * PAGE_BYTES;
                self.region.zero(at + whole, PAGE_BYTES - whole);
                frame
            }
            Found::Missing => return PageStep::Bypass,
        };
        if !write_frame(&mut state, &self.region, pending, page, frame, now) {
            return PageStep::Bypass;
        }
        PageStep::Done
    }
}

/// Writes a request's part of a page into its frame, unless too many pages are dirty. Returns true
/// if it was written.
pub(super) fn write_frame(
    state: &mut CacheState,
    region: &RegionHandle,
    pending: &mut Pending,
    page: u64,
    frame: Frame,
    now: Time,
) -> bool {
    if !state.table.may_dirty(Some(frame)) {
        return false;
    }
    let part = pending.overlap(page);
    let data = pending.data.as_ref().expect("a write has data");
    let at = frame as usize * PAGE_BYTES + part.in_page;
    copy_to_region(data, part.in_data, region, at, part.len);
    state.dirty(frame, now);
    pending.page_done(page);
    true
}
