//! Reads: copies of cached pages, transfers for missing ones, and read-ahead.

use super::copy_from_region;
use super::{CacheChannel, Context, Found, Io, IoSlice, Operation, PAGE_BYTES, PageStep, SlabKey};
use std::ops::Range;

/// Consecutive pages that are read by one request.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) pages: Range<u64>,
    pub(super) framed: bool,
    pub(super) memory: IoSlice,
}

impl CacheChannel {
    /// Copies the cached pages, and reads those that no channel is reading.
    pub(super) fn advance_read(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let pages = self.pending(key).pages();
        let mut run = None;
        let mut memory = None;
        for page in pages {
            if self.pending(key).is_taken(page) {
                continue;
            }
            let mut step = self.read_page(key, page, memory.is_some());
            if step == PageStep::NoMemory {
                memory = self.transfers.read_memory();
                if memory.is_some() {
                    step = self.read_page(key, page, true);
                }
            }
            match step {
                PageStep::Done => {}
                PageStep::Read { framed } => {
                    self.pending(key).take(page);
                    self.extend(&mut run, page, framed, &mut memory, Some(key), cx);
                }
                _ => self.pending(key).waits = true,
            }
        }
        self.start(run, Some(key), cx);
    }

    fn read_page(&mut self, key: SlabKey, page: u64, may_read: bool) -> PageStep {
        let pending = self.pendings.get_mut(key).expect("the request is not over");
        let mut state = self.shared.lock();
        match state.table.find(page) {
            Found::Frame(frame) => {
                state.table.touch(frame);
                state.counters.hits += 1;
                let part = pending.overlap(page);
                let data = pending.data.as_mut().expect("a read has data");
                let at = frame as usize * PAGE_BYTES + part.in_page;
                copy_from_region(&self.region, at, data, part.in_data, part.len);
                pending.page_done(page);
                PageStep::Done
            }
            Found::Filling => {
                state.block(&self.bell);
                PageStep::Wait
            }
            Found::Missing if state.table.is_claimed(page) => {
                state.block(&self.bell);
                PageStep::Wait
            }
            Found::Missing if !may_read => PageStep::NoMemory,
            Found::Missing => {
                state.counters.misses += 1;
                let framed = state.table.allocate(page).is_some();
                PageStep::Read { framed }
            }
        }
    }

    /// Adds a page to a run; starts another run if it does not fit.
    fn extend(
        &mut self,
        run: &mut Option<Run>,
        page: u64,
        framed: bool,
        memory: &mut Option<IoSlice>,
        key: Option<SlabKey>,
        cx: &mut Context<'_>,
    ) {
        let most = self.transfers.most_pages();
        if let Some(run) = run {
            let fits = run.pages.end - run.pages.start < most;
            if fits && run.pages.end == page && run.framed == framed {
                run.pages.end += 1;
                return;
            }
        }
        self.start(run.take(), key, cx);
        *run = memory.take().map(|memory| Run {
            pages: page..page + 1,
            framed,
            memory,
        });
    }

    /// Reads a run.
    pub(super) fn start(&mut self, run: Option<Run>, key: Option<SlabKey>, cx: &mut Context<'_>) {
        let Some(run) = run else { return };
        let request = self.page_request(Operation::Read, &run.pages, &run.memory);
        let io = Io::Read {
            pages: run.pages,
            framed: run.framed,
            key,
        };
        if let Some(key) = key {
            self.pending(key).ios += 1;
        }
        self.transfers.submit(io, false, request, cx);
    }

    /// Reads ahead of a read if it belongs to a sequential stream.
    pub(super) fn look_ahead(&mut self, pages: Range<u64>, cx: &mut Context<'_>) {
        let before = pages.start.wrapping_sub(1);
        let shared = &self.shared;
        let cached = || shared.lock().table.find(before) != Found::Missing;
        let Some(ahead) = self.read_ahead.read(pages, cached) else {
            return;
        };
        let end = self.geometry.bytes().div_ceil(PAGE_BYTES as u64);
        let (mut run, mut memory) = (None, None);
        for page in ahead.start..ahead.end.min(end) {
            if memory.is_none() {
                memory = self.transfers.read_memory();
            }
            if memory.is_none() {
                break;
            }
            let mut state = self.shared.lock();
            if state.held {
                break;
            }
            if state.table.find(page) != Found::Missing || state.table.is_claimed(page) {
                continue;
            }
            if state.table.allocate(page).is_none() {
                break;
            }
            state.counters.read_ahead += 1;
            drop(state);
            self.extend(&mut run, page, true, &mut memory, None, cx);
        }
        self.start(run, None, cx);
    }
}
