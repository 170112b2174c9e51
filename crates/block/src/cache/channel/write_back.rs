//! Write-back: the dirty pages that a channel writes, and when.

use super::Time;
use super::ends::copy_page;
use super::{Bell, CacheChannel, Context, Io, Nanos, Operation, PAGE_BYTES, Phase, RETRY_PAUSE};
use super::{CacheState, Stage};
use std::ops::Range;
use std::sync::Arc;

/// All pages.
const EVERYWHERE: Range<u64> = 0..u64::MAX;

impl CacheState {
    /// Notes that the channel with this bell runs, if it is the one that writes back for all.
    fn writer_runs(&mut self, bell: &Arc<Bell>, now: Time) {
        if let Some((writer, ran_at)) = &mut self.writer
            && Arc::ptr_eq(writer, bell)
        {
            *ran_at = now;
        }
    }

    /// Returns the time from which the channel with this bell may write back for all. Another one
    /// that does so is replaced when it has not run for a while: its thread may never run again.
    fn writer_from(&self, bell: &Arc<Bell>) -> Time {
        match &self.writer {
            Some((writer, ran_at)) if !Arc::ptr_eq(writer, bell) => *ran_at + RETRY_PAUSE,
            _ => Time::ZERO,
        }
    }

    /// The channel with this bell writes back for all no more.
    pub(super) fn resign(&mut self, bell: &Arc<Bell>) {
        self.writer.take_if(|(writer, _)| Arc::ptr_eq(writer, bell));
    }
}

impl CacheChannel {
    /// Writes pages back, in the order given, neighbours as one request. Pages that are clean, on
    /// their way or claimed are passed over. Where a request waits for them (`awaited`) they are
    /// written as its own data is, by the way that does not gather. Returns how many of them were
    /// looked at: fewer than all while there is no memory for more.
    pub(super) fn write_back(
        &mut self,
        pages: &[u64],
        awaited: bool,
        cx: &mut Context<'_>,
    ) -> usize {
        let most = self.transfers.most_pages();
        let mut at = 0;
        while at < pages.len() {
            let Some(mut memory) = self.transfers.write_memory() else {
                break;
            };
            let mut run: Range<u64> = 0..0;
            while let Some(&page) = pages.get(at) {
                let is_first = run.is_empty();
                if !is_first && (page != run.end || run.end - run.start >= most) {
                    break;
                }
                at += 1;
                let mut state = self.shared.lock();
                let Some(frame) = state.table.begin_write_back(page) else {
                    continue;
                };
                if is_first {
                    run = page..page;
                }
                let offset = usize::try_from(run.end - run.start).expect("a few pages");
                copy_page(&self.region, frame, &mut memory, offset * PAGE_BYTES);
                run.end += 1;
            }
            if run.is_empty() {
                continue;
            }
            let operation = Operation::Write { durable: false };
            let request = self.page_request(operation, &run, &memory);
            drop(memory);
            let io = Io::WriteBack { pages: run };
            self.transfers.submit(io, !awaited, request, cx);
        }
        at
    }

    /// Returns the last epoch that this channel has to see written back.
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

    /// Writes back what a Flush, the limit of dirty pages or their age demands, as far as there is
    /// memory.
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
        // Pages that could not be written are planned again after the next change.
        if self.plan_at == self.plan.len() && self.make_plan(cx) {
            self.follow_plan(cx);
        }
    }

    /// Returns true unless the device is being resized or erased, or was resized, and nothing waits
    /// for the channel's write-back.
    fn may_write_back(&self, now: Time) -> bool {
        let mut state = self.shared.lock();
        state.writer_runs(&self.bell, now);
        !self.is_stale() && (!state.held || self.wanted_epoch().is_some())
    }

    fn follow_plan(&mut self, cx: &mut Context<'_>) {
        let plan = std::mem::take(&mut self.plan);
        let awaited = self.wanted_epoch().is_some();
        self.plan_at += self.write_back(&plan[self.plan_at..], awaited, cx);
        self.plan = plan;
    }

    /// Collects the pages to be written back; returns whether there are any.
    fn make_plan(&mut self, cx: &Context<'_>) -> bool {
        let epoch = self.wanted_epoch();
        let options = self.shared.options;
        let mut state = self.shared.lock();
        self.plan.clear();
        self.plan_at = 0;
        let unsaved = epoch.filter(|&epoch| !state.table.is_saved(epoch));
        if let Some(epoch) = unsaved {
            state
                .table
                .collect_dirty(epoch, &EVERYWHERE, &mut self.plan);
            // Others may have pages on their way.
            state.block(&self.bell);
            return !self.plan.is_empty();
        }
        let many = state.table.dirty_pages() > options.dirty_background;
        let since = state.table.dirty_since();
        let expired = since.is_some_and(|since| since + options.dirty_expire <= cx.now)
            && cx.now >= self.next_look;
        let wants = self.stage == Stage::Open && cx.now >= self.paused_until && (many || expired);
        if !wants || state.writer_from(&self.bell) > cx.now {
            state.resign(&self.bell);
            return false;
        }
        state.writer = Some((Arc::clone(&self.bell), cx.now));
        self.next_look = cx.now + RETRY_PAUSE;
        if many {
            let table = &state.table;
            table.collect_dirty(u64::MAX, &EVERYWHERE, &mut self.plan);
        } else {
            // Few looks: what is young is left to a later one.
            let half = Nanos(options.dirty_expire.0 / 2);
            state.table.collect_older(cx.now - half, &mut self.plan);
        }
        !self.plan.is_empty()
    }

    /// Returns the time at which a page will be dirty for too long, and this channel is to write it
    /// back.
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
