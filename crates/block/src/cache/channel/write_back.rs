//! Write-back: which dirty pages a channel writes, and when.

use super::Time;
use super::ends::copy_page;
use super::{
    Bell, CacheChannel, Context, Io, IoSlice, Nanos, Operation, PAGE_BYTES, Phase, RETRY_PAUSE,
};
use super::{CacheState, Stage};
use crate::cache::table::{Mark, Wanted};
use std::ops::Range;
use std::sync::Arc;

/// The result of a pass over pages to be written back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pass {
    /// Number of pages examined; fewer than all if there is no memory for more.
    looked: usize,
    /// Number of write-backs started.
    begun: usize,
}

impl CacheState {
    /// Records that the channel with this bell runs, if it is the one that writes back for all.
    fn writer_runs(&mut self, bell: &Arc<Bell>, now: Time) {
        if let Some((writer, ran_at)) = &mut self.writer
            && Arc::ptr_eq(writer, bell)
        {
            *ran_at = now;
        }
    }

    /// Returns the time from which the channel with this bell may write back for all. Another
    /// channel in this role is replaced if it has not run for a while, because its thread may never
    /// run again.
    fn writer_from(&self, bell: &Arc<Bell>) -> Time {
        match &self.writer {
            Some((writer, ran_at)) if !Arc::ptr_eq(writer, bell) => *ran_at + RETRY_PAUSE,
            _ => Time::ZERO,
        }
    }

    /// Ends the role of the channel with this bell of writing back for all.
    pub(super) fn resign(&mut self, bell: &Arc<Bell>) {
        self.writer.take_if(|(writer, _)| Arc::ptr_eq(writer, bell));
    }
}

impl CacheChannel {
    /// Writes pages back in the given order, each with its adjacent dirty pages as one request.
    /// Pages that are clean, in transfer or claimed are skipped. If a request waits for them
    /// (`awaited`), they are written like its own data, on the device that does not gather writes.
    pub(super) fn write_back(
        &mut self,
        pages: &[u64],
        awaited: bool,
        cx: &mut Context<'_>,
    ) -> Pass {
        let most = self.transfers.most_pages();
        let mut pass = Pass::default();
        let mut spare = None;
        while let Some(&page) = pages.get(pass.looked) {
            let Some(mut memory) = spare.take().or_else(|| self.transfers.write_memory()) else {
                break;
            };
            let Some(run) = self.begin_run(page, most, &mut memory) else {
                pass.looked += 1;
                spare = Some(memory);
                continue;
            };
            // The run has included the next pages of the order. None if another thread took one
            // between its first page and this one.
            let rest = &pages[pass.looked..];
            pass.looked += rest.iter().take_while(|page| run.contains(*page)).count();
            pass.begun += 1;
            let operation = Operation::Write { durable: false };
            let request = self.page_request(operation, &run, &memory);
            drop(memory);
            let io = Io::WriteBack { pages: run };
            self.transfers.submit(io, !awaited, request, cx);
        }
        pass
    }

    /// Starts the write-back of a page and its adjacent dirty pages, up to `most` in total, and
    /// copies them to `memory`. `None` if the page is not to be written.
    fn begin_run(&self, page: u64, most: u64, memory: &mut IoSlice) -> Option<Range<u64>> {
        let mut state = self.shared.lock();
        if !state.table.may_write_back(page) {
            return None;
        }
        let first = state.table.run_start(page, most);
        let mut run = first..first;
        while run.end - run.start < most {
            let Some(frame) = state.table.begin_write_back(run.end) else {
                break;
            };
            let offset = usize::try_from(run.end - run.start).expect("a few pages");
            copy_page(&self.region, frame, memory, offset * PAGE_BYTES);
            run.end += 1;
            // Other threads then wait for the copy of one page, not of all.
            drop(state);
            state = self.shared.lock();
        }
        Some(run)
    }

    /// Returns the last epoch whose write-back this channel must wait for.
    fn wanted_epoch(&self) -> Option<u64> {
        let pendings = self.live.iter().filter_map(|key| self.pendings.get(*key));
        let epochs = pendings.filter_map(|pending| match pending.phase {
            Phase::Flushing(epoch) => Some(epoch),
            _ => None,
        });
        let closing = match self.stage {
            Stage::Saving(epoch) => Some(epoch),
            _ => None,
        };
        epochs.chain(closing).max()
    }

    /// Writes back the pages required by a Flush, the limit of dirty pages or their age, while
    /// there is memory.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.may_write_back(cx.now) {
            self.plan.clear();
            self.plan_at = 0;
            self.shared.lock().resign(&self.bell);
            return;
        }
        if self.plan_at < self.plan.len() {
            self.follow_plan(cx);
        }
        // Pages that could not be written are planned again after the next change. If no page of a
        // plan could be written, younger pages must not wait for that.
        let mut mark = None;
        while self.plan_at == self.plan.len() {
            mark = self.make_plan(mark, cx);
            if self.follow_plan(cx) > 0 || mark.is_none() {
                break;
            }
        }
    }

    /// Returns true unless the device is being resized or erased, or was resized, and nothing waits
    /// for the channel's write-back.
    fn may_write_back(&self, now: Time) -> bool {
        let mut state = self.shared.lock();
        state.writer_runs(&self.bell, now);
        !self.is_stale() && (!state.held || self.wanted_epoch().is_some())
    }

    /// Returns the number of write-backs started.
    fn follow_plan(&mut self, cx: &mut Context<'_>) -> usize {
        let plan = std::mem::take(&mut self.plan);
        let awaited = self.wanted_epoch().is_some();
        let pass = self.write_back(&plan[self.plan_at..], awaited, cx);
        self.plan_at += pass.looked;
        self.plan = plan;
        pass.begun
    }

    /// Collects pages to be written back, from `mark` on. Returns where to continue if there are
    /// more than fit into a plan.
    fn make_plan(&mut self, mark: Option<Mark>, cx: &Context<'_>) -> Option<Mark> {
        let more = self.collect_plan(mark, cx);
        // Sorted after the lock is released.
        self.plan.sort_unstable();
        more
    }

    fn collect_plan(&mut self, mark: Option<Mark>, cx: &Context<'_>) -> Option<Mark> {
        let epoch = self.wanted_epoch();
        let options = self.shared.options;
        let mut state = self.shared.lock();
        self.plan.clear();
        self.plan_at = 0;
        let unsaved = epoch.filter(|&epoch| !state.table.is_saved(epoch));
        if let Some(epoch) = unsaved {
            let wanted = Wanted {
                epoch,
                ..Wanted::ALL
            };
            let more = state.table.collect_dirty(wanted, mark, &mut self.plan);
            // Other channels may have pages in transfer.
            state.block(&self.bell);
            return more;
        }
        let background = if state.drains {
            0
        } else {
            options.dirty_background
        };
        let many = state.table.dirty_pages() > background;
        let since = state.table.dirty_since();
        let expired = since.is_some_and(|since| since + options.dirty_expire <= cx.now)
            && (cx.now >= self.next_look || self.is_plan_cut);
        let wants = self.stage == Stage::Open && cx.now >= self.paused_until && (many || expired);
        if !wants || state.writer_from(&self.bell) > cx.now {
            state.resign(&self.bell);
            self.is_plan_cut = false;
            return None;
        }
        state.writer = Some((Arc::clone(&self.bell), cx.now));
        let wanted = if many {
            Wanted::ALL
        } else {
            // Pages dirty for less than half of the time are left to a later check, which keeps
            // checks rare.
            let half = Nanos(options.dirty_expire.0 / 2);
            Wanted {
                since: cx.now - half,
                ..Wanted::ALL
            }
        };
        self.next_look = cx.now + RETRY_PAUSE;
        let more = state.table.collect_dirty(wanted, mark, &mut self.plan);
        self.is_plan_cut = more.is_some();
        more
    }

    /// Returns the time at which a page expires and this channel must write it back.
    pub(super) fn next_expiry(&self) -> Time {
        let state = self.shared.lock();
        if self.stage != Stage::Open || self.is_stale() || state.held {
            return Time::NEVER;
        }
        let earliest = state.writer_from(&self.bell).max(self.next_look);
        let since = state.table.dirty_since();
        since.map_or(Time::NEVER, |since| {
            let expired = since + self.shared.options.dirty_expire;
            expired.max(earliest).max(self.paused_until)
        })
    }
}
