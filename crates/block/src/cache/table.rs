//! The table of a cache: the page in each frame, and the frames that differ from the device.
//!
//! Decisions without I/O. The table has a fixed size and allocates nothing after its creation,
//! except for the epochs of Flushes in flight.

use base::Time;
use base::mutation::{self, Mutation};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;

/// Largest number of frames examined in a search for one to evict, because other threads wait
/// meanwhile.
const SWEEP_MAX: usize = 1024;

/// Largest number of dirty pages in one plan of write-back, because other threads wait while they
/// are collected.
pub(super) const PLAN_PAGES_MAX: usize = 1024;

/// End of a chain of frames.
const NONE: u32 = u32::MAX;

/// Number of a frame, which holds a page.
pub(super) type Frame = u32;

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No frame has the page.
    Missing,
    /// A channel is reading the page from the device.
    Filling,
    /// The frame of the page.
    Frame(Frame),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    Free,
    Filling,
    Valid,
}

#[derive(Clone, Copy, Debug)]
struct TableEntry {
    page: u64,
    state: FrameState,
    /// Used since the clock hand last passed.
    referenced: bool,
    /// Epoch of the first write that no write-back includes.
    dirty: Option<u64>,
    /// Epoch of the first write that the current write-back includes.
    writing: Option<u64>,
    /// True if the last write-back failed.
    failed: bool,
    /// Time at which it became dirty.
    since: Time,
    /// Adjacent frames in the list of dirty frames, which is ordered by the time at which they
    /// became dirty.
    older: Frame,
    newer: Frame,
    /// Next frame in the bucket.
    next: Frame,
}

const FREE: TableEntry = TableEntry {
    page: 0,
    state: FrameState::Free,
    referenced: false,
    dirty: None,
    writing: None,
    failed: false,
    since: Time::ZERO,
    older: NONE,
    newer: NONE,
    next: NONE,
};

/// The dirty pages to collect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Pages of epochs up to this one.
    pub(super) epoch: u64,
    /// Pages dirty since this time or earlier.
    pub(super) since: Time,
}

impl Wanted {
    /// All dirty pages.
    pub(super) const ALL: Self = Self {
        epoch: u64::MAX,
        since: Time::NEVER,
    };
}

/// A position in the list of dirty frames, from which a collection continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    frame: Frame,
    since: Time,
}

/// Identifier of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim(u64);

/// Pages and frames.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<TableEntry>,
    /// First frame of each bucket; the number of buckets is a power of two.
    buckets: Vec<Frame>,
    free: Vec<Frame>,
    dirty: DirtyList,
    /// Number of frames that are dirty or being written back.
    unsaved: u32,
    dirty_max: u32,
    hand: Frame,
    /// Ranges of pages that requests change on the device, bypassing the cache.
    claims: Vec<(Claim, Range<u64>)>,
    next_claim: u64,
    epochs: Epochs,
}

/// The dirty frames, linked in the order in which they became dirty.
#[derive(Clone, Copy, Debug)]
struct DirtyList {
    oldest: Frame,
    newest: Frame,
    count: u32,
    /// The latest time seen, so that ages ascend although the threads' clock readings differ.
    latest: Time,
}

/// Unsaved writes by epoch. Each Flush ends an epoch.
#[derive(Debug, Default)]
struct Epochs {
    /// Epoch of the first count.
    base: u64,
    counts: VecDeque<u32>,
}

impl Epochs {
    fn current(&self) -> u64 {
        self.base + self.counts.len() as u64 - 1
    }

    fn count(&mut self, epoch: u64) -> &mut u32 {
        let index = usize::try_from(epoch - self.base).expect("few epochs are under way");
        &mut self.counts[index]
    }

    fn remove(&mut self, epoch: u64) {
        *self.count(epoch) -= 1;
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.base += 1;
        }
    }
}

impl Table {
    /// Creates a table of `frames` free frames, of which `dirty_max` may differ from the device.
    pub(super) fn new(frames: u32, dirty_max: u32) -> Self {
        let buckets = (frames as usize).next_power_of_two();
        Self {
            entries: vec![FREE; frames as usize],
            buckets: vec![NONE; buckets],
            free: (0..frames).rev().collect(),
            dirty: DirtyList {
                oldest: NONE,
                newest: NONE,
                count: 0,
                latest: Time::ZERO,
            },
            unsaved: 0,
            dirty_max,
            hand: 0,
            claims: Vec::with_capacity(64),
            next_claim: 0,
            epochs: Epochs {
                base: 1,
                counts: VecDeque::from([0]),
            },
        }
    }

    fn entry(&mut self, frame: Frame) -> &mut TableEntry {
        &mut self.entries[frame as usize]
    }

    /// Returns the bucket of a page: adjacent pages have adjacent buckets.
    fn bucket(&self, page: u64) -> usize {
        let mixed = page ^ (page >> 20).wrapping_mul(0x9E37_79B9);
        usize::try_from(mixed & (self.buckets.len() as u64 - 1)).expect("a bucket's number")
    }

    /// Looks a page up.
    pub(super) fn find(&self, page: u64) -> Found {
        match self.any_frame(page) {
            None => Found::Missing,
            Some(frame) => match self.entries[frame as usize].state {
                FrameState::Filling => Found::Filling,
                FrameState::Free | FrameState::Valid => Found::Frame(frame),
            },
        }
    }

    /// Records that a page was used.
    pub(super) fn touch(&mut self, frame: Frame) {
        self.entry(frame).referenced = true;
    }

    /// Allocates a frame for an uncached page, which is then being filled; evicts a clean page if
    /// necessary. `None` if no frame is found.
    pub(super) fn allocate(&mut self, page: u64) -> Option<Frame> {
        debug_assert_eq!(self.find(page), Found::Missing);
        let frame = self.free.pop().or_else(|| self.evict())?;
        let bucket = self.bucket(page);
        self.entries[frame as usize] = TableEntry {
            page,
            state: FrameState::Filling,
            next: self.buckets[bucket],
            ..FREE
        };
        self.buckets[bucket] = frame;
        Some(frame)
    }

    /// Evicts a clean page that was not used since the clock hand last passed (CLOCK).
    fn evict(&mut self) -> Option<Frame> {
        let count = u32::try_from(self.entries.len()).expect("frames have numbers");
        for _ in 0..SWEEP_MAX.min(2 * self.entries.len()) {
            let frame = self.hand;
            self.hand = (self.hand + 1) % count;
            let entry = self.entry(frame);
            let clean = entry.dirty.is_none() || mutation::active(Mutation::DirtyPageEvicted);
            let clean = clean && entry.writing.is_none();
            if entry.state != FrameState::Valid || !clean {
                continue;
            }
            if std::mem::take(&mut entry.referenced) {
                continue;
            }
            if mutation::active(Mutation::DirtyPageEvicted) {
                self.clean(frame);
            }
            self.unlink(frame);
            return Some(frame);
        }
        None
    }

    fn unlink(&mut self, frame: Frame) {
        let (page, next) = (self.entry(frame).page, self.entry(frame).next);
        let bucket = self.bucket(page);
        if self.buckets[bucket] == frame {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.entry(before).next != frame {
                before = self.entry(before).next;
            }
            self.entry(before).next = next;
        }
        *self.entry(frame) = FREE;
    }

    /// Marks a page that was being filled as valid. Returns its frame.
    pub(super) fn filled(&mut self, page: u64, referenced: bool) -> Option<Frame> {
        let frame = self.any_frame(page)?;
        let entry = self.entry(frame);
        entry.state = FrameState::Valid;
        entry.referenced = referenced;
        Some(frame)
    }

    fn any_frame(&self, page: u64) -> Option<Frame> {
        let mut frame = self.buckets[self.bucket(page)];
        while frame != NONE && self.entries[frame as usize].page != page {
            frame = self.entries[frame as usize].next;
        }
        (frame != NONE).then_some(frame)
    }

    /// Drops a page in any state; a write-back in flight continues.
    pub(super) fn forget(&mut self, page: u64) {
        let Some(frame) = self.any_frame(page) else {
            return;
        };
        if self.entry(frame).writing.is_some() {
            return;
        }
        self.clean(frame);
        self.unlink(frame);
        self.free.push(frame);
    }

    /// Drops the pages of a range that are not known to differ from the device: the device's
    /// content is unknown.
    pub(super) fn forget_saved(&mut self, range: &Range<u64>) {
        let cached: Vec<_> = self.cached(range).collect();
        for (page, frame) in cached {
            if !self.is_unsaved(frame) {
                self.forget(page);
            }
        }
    }

    /// Returns true if the frame may be written: it is unsaved already, or another frame may become
    /// so.
    pub(super) fn may_dirty(&self, frame: Option<Frame>) -> bool {
        self.unsaved < self.dirty_max || frame.is_some_and(|frame| self.is_unsaved(frame))
    }

    /// Marks the content of a frame as different from the device from `now` on.
    pub(super) fn dirty(&mut self, frame: Frame, now: Time) {
        let epoch = self.epochs.current();
        let since = self.dirty.latest.max(now);
        let older = self.dirty.newest;
        let entry = self.entry(frame);
        entry.referenced = true;
        if entry.dirty.is_some() {
            return;
        }
        entry.dirty = Some(epoch);
        entry.since = since;
        (entry.older, entry.newer) = (older, NONE);
        let newly = entry.writing.is_none();
        self.unsaved += u32::from(newly);
        self.dirty.latest = since;
        self.dirty.newest = frame;
        self.dirty.count += 1;
        match older {
            NONE => self.dirty.oldest = frame,
            older => self.entry(older).newer = frame,
        }
        *self.epochs.count(epoch) += 1;
    }

    /// Removes a frame from the list of dirty frames. Returns its epoch.
    fn take_dirty(&mut self, frame: Frame) -> Option<u64> {
        let epoch = self.entry(frame).dirty.take()?;
        let TableEntry { older, newer, .. } = *self.entry(frame);
        match older {
            NONE => self.dirty.oldest = newer,
            older => self.entry(older).newer = newer,
        }
        match newer {
            NONE => self.dirty.newest = older,
            newer => self.entry(newer).older = older,
        }
        self.dirty.count -= 1;
        Some(epoch)
    }

    /// Marks a frame as clean: the device got its content by another write.
    pub(super) fn clean(&mut self, frame: Frame) {
        if let Some(epoch) = self.take_dirty(frame) {
            self.epochs.remove(epoch);
            self.unsaved -= u32::from(self.entry(frame).writing.is_none());
        }
        self.entry(frame).failed = false;
    }

    /// Returns true if the write-back of a page can begin: it is dirty, and neither being written
    /// back nor claimed.
    pub(super) fn may_write_back(&self, page: u64) -> bool {
        let Found::Frame(frame) = self.find(page) else {
            return false;
        };
        let entry = &self.entries[frame as usize];
        entry.dirty.is_some() && entry.writing.is_none() && !self.is_claimed(page)
    }

    /// Begins the write-back of a page if it is dirty, and neither being written back nor claimed.
    /// Returns its frame.
    pub(super) fn begin_write_back(&mut self, page: u64) -> Option<Frame> {
        let Found::Frame(frame) = self.find(page) else {
            return None;
        };
        if self.entry(frame).writing.is_some() || self.is_claimed(page) {
            return None;
        }
        let epoch = self.take_dirty(frame)?;
        self.entry(frame).writing = Some(epoch);
        Some(frame)
    }

    /// Ends the write-back of a page. If it failed, the page is dirty again, in the current epoch
    /// and from `now` on: the Flushes that wait for it report the failure, and the next Flush
    /// writes the page again.
    pub(super) fn end_write_back(&mut self, page: u64, ok: bool, now: Time) {
        let Some(frame) = self.any_frame(page) else {
            return;
        };
        let Some(epoch) = self.entry(frame).writing.take() else {
            return;
        };
        if self.entry(frame).dirty.is_none() {
            self.unsaved -= 1;
        }
        self.epochs.remove(epoch);
        if !ok {
            self.dirty(frame, now);
        }
        self.entry(frame).failed = !ok;
    }

    /// Returns the number of dirty pages, without those being written back.
    pub(super) fn dirty_pages(&self) -> u32 {
        self.dirty.count
    }

    /// Returns the number of pages that differ from the device.
    pub(super) fn unsaved_pages(&self) -> u32 {
        self.unsaved
    }

    /// Ends the current epoch, and returns it.
    pub(super) fn end_epoch(&mut self) -> u64 {
        let epoch = self.epochs.current();
        self.epochs.counts.push_back(0);
        if self.epochs.counts[0] == 0 {
            self.epochs.counts.pop_front();
            self.epochs.base += 1;
        }
        epoch
    }

    /// Returns true if all writes up to the end of an epoch are on the device, or their write-back
    /// has failed since.
    pub(super) fn is_saved(&self, epoch: u64) -> bool {
        let counts = (self.epochs.base..=epoch).zip(&self.epochs.counts);
        counts.into_iter().all(|(_, &count)| count == 0)
            || mutation::active(Mutation::WriteBackNotAwaited)
    }

    /// Collects the dirty pages of a range of epochs up to `epoch`.
    pub(super) fn collect_range(&self, epoch: u64, range: &Range<u64>, pages: &mut Vec<u64>) {
        pages.clear();
        let dirty = |frame: Frame| self.entries[frame as usize].dirty;
        let chosen = self
            .cached(range)
            .filter(|&(_, frame)| dirty(frame).is_some_and(|since| since <= epoch));
        pages.extend(chosen.map(|(page, _)| page));
    }

    /// Collects up to [`PLAN_PAGES_MAX`] dirty pages, oldest first: from `from` on, or from the
    /// oldest one if that position no longer exists. Returns the position to continue from, if
    /// there are more.
    pub(super) fn collect_dirty(
        &self,
        wanted: Wanted,
        from: Option<Mark>,
        pages: &mut Vec<u64>,
    ) -> Option<Mark> {
        pages.clear();
        let is_there = |mark: &Mark| {
            let entry = &self.entries[mark.frame as usize];
            entry.dirty.is_some() && entry.since == mark.since
        };
        let from = from.filter(is_there).map(|mark| mark.frame);
        let mut frame = from.unwrap_or(self.dirty.oldest);
        // Epochs and times ascend along the list.
        while let Some(entry) = self.entries.get(frame as usize) {
            let is_wanted = entry.dirty.is_some_and(|epoch| epoch <= wanted.epoch);
            if !is_wanted || entry.since > wanted.since {
                return None;
            }
            if pages.len() == PLAN_PAGES_MAX {
                let since = entry.since;
                return Some(Mark { frame, since });
            }
            pages.push(entry.page);
            frame = entry.newer;
        }
        None
    }

    /// Returns the first page of the run of at most `most` pages that can be written back and that
    /// ends with `page`.
    pub(super) fn run_start(&self, page: u64, most: u64) -> u64 {
        let lowest = (page + 1).saturating_sub(most);
        let before = (lowest..page).rev();
        let before = before.take_while(|page| self.may_write_back(*page));
        before.last().unwrap_or(page)
    }

    /// Returns the time since which the oldest dirty page has been dirty.
    pub(super) fn dirty_since(&self) -> Option<Time> {
        let oldest = self.entries.get(self.dirty.oldest as usize);
        oldest.map(|entry| entry.since)
    }

    /// Returns the state of the writes to a range until the end of an epoch: `Ok(true)` if all are
    /// on the device, `Err` if the write-back of some failed.
    pub(super) fn range_saved(&self, epoch: u64, range: &Range<u64>) -> Result<bool, ()> {
        let mut saved = true;
        for (_, frame) in self.cached(range) {
            let entry = &self.entries[frame as usize];
            saved &= entry.dirty.is_none_or(|since| since > epoch);
            saved &= entry.writing.is_none_or(|since| since > epoch);
            if entry.failed && entry.dirty.is_some_and(|since| since > epoch) {
                return Err(());
            }
        }
        Ok(saved)
    }

    /// Returns the cached pages of a range with their frames.
    pub(super) fn cached(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, Frame)> {
        let few = range.end - range.start <= self.entries.len() as u64;
        let by_page = if few { range.clone() } else { 0..0 };
        let frames = if few { &[][..] } else { &self.entries[..] };
        let range = range.clone();
        let by_page = by_page.filter_map(|page| Some((page, self.any_frame(page)?)));
        let by_frame = (0..).zip(frames).filter_map(move |(frame, entry)| {
            let there = entry.state != FrameState::Free && range.contains(&entry.page);
            there.then_some((entry.page, frame))
        });
        by_page.chain(by_frame)
    }

    /// Returns true if the frame is being written to the device, or its content differs.
    pub(super) fn is_unsaved(&self, frame: Frame) -> bool {
        let entry = &self.entries[frame as usize];
        entry.dirty.is_some() || entry.writing.is_some()
    }

    /// Claims a range: none of its pages is filled, written or written back from now on. `None` if
    /// another claim overlaps.
    pub(super) fn claim(&mut self, range: &Range<u64>) -> Option<Claim> {
        let overlaps =
            |(_, other): &(Claim, Range<u64>)| other.start < range.end && range.start < other.end;
        if self.claims.iter().any(overlaps) {
            return None;
        }
        let claim = Claim(self.next_claim);
        self.next_claim += 1;
        self.claims.push((claim, range.clone()));
        Some(claim)
    }

    pub(super) fn release(&mut self, claim: Claim) {
        self.claims.retain(|(other, _)| *other != claim);
    }

    pub(super) fn is_claimed(&self, page: u64) -> bool {
        self.claims.iter().any(|(_, range)| range.contains(&page))
            && !mutation::active(Mutation::ClaimIgnored)
    }

    /// Returns true if no page of the range is in transfer from or to the device.
    pub(super) fn is_quiet(&self, range: &Range<u64>) -> bool {
        self.cached(range).all(|(_, frame)| {
            let entry = &self.entries[frame as usize];
            entry.state == FrameState::Valid && entry.writing.is_none()
        })
    }

    /// Returns true if no page is in transfer.
    pub(super) fn is_idle(&self) -> bool {
        let still =
            |entry: &TableEntry| entry.state != FrameState::Filling && entry.writing.is_none();
        self.claims.is_empty() && self.entries.iter().all(still)
    }
}

#[cfg(test)]
mod tests;
