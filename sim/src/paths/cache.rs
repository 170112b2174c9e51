//! The pages of a write-back cache: cached pages, dirty pages, and the threads that wait for a
//! page.

use super::scenario::CacheSize;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

#[derive(Debug)]
enum Page {
    /// Being read from the device; these threads wait for it.
    Filling(Vec<usize>),
    Clean,
    Dirty,
    /// Being written to the device.
    Writing,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Missing,
    Filling,
    There,
}

#[derive(Debug)]
pub(super) struct PageCache {
    size: CacheSize,
    pages: HashMap<u64, Page>,
    /// Pages in the order in which they became clean; may contain pages that are no longer clean.
    clean: VecDeque<u64>,
    dirty: BTreeSet<u64>,
    writing: usize,
    /// Dirty pages to write back, in ascending order.
    plan: VecDeque<u64>,
}

impl PageCache {
    pub(super) fn new(size: CacheSize) -> Self {
        Self {
            size,
            pages: HashMap::new(),
            clean: VecDeque::new(),
            dirty: BTreeSet::new(),
            writing: 0,
            plan: VecDeque::new(),
        }
    }

    pub(super) fn find(&self, page: u64) -> Found {
        match self.pages.get(&page) {
            None => Found::Missing,
            Some(Page::Filling(_)) => Found::Filling,
            Some(_) => Found::There,
        }
    }

    fn put(&mut self, number: u64, page: Page) {
        self.pages.insert(number, page);
        while self.pages.len() > self.size.pages
            && let Some(oldest) = self.clean.pop_front()
        {
            if matches!(self.pages.get(&oldest), Some(Page::Clean)) {
                self.pages.remove(&oldest);
            }
        }
    }

    /// Starts the fill of a page from the device.
    pub(super) fn fill(&mut self, page: u64) {
        self.put(page, Page::Filling(Vec::new()));
    }

    /// Adds a thread to those that wait for a page being filled.
    pub(super) fn wait(&mut self, number: u64, thread: usize) {
        if let Some(Page::Filling(waiting)) = self.pages.get_mut(&number) {
            waiting.push(thread);
        }
    }

    /// Completes the fill of a page; returns the threads that waited for it.
    pub(super) fn filled(&mut self, number: u64) -> Vec<usize> {
        let filled = self.pages.insert(number, Page::Clean);
        self.clean.push_back(number);
        match filled {
            Some(Page::Filling(waiting)) => waiting,
            _ => Vec::new(),
        }
    }

    /// Writes a page into the cache, unless too many are dirty; returns whether it did. A page
    /// being filled or written back is refused, too, until that has ended.
    pub(super) fn write(&mut self, number: u64) -> bool {
        match self.pages.get(&number) {
            Some(Page::Dirty) => return true,
            Some(Page::Filling(_) | Page::Writing) => return false,
            None | Some(Page::Clean) => {}
        }
        if self.is_full() {
            return false;
        }
        self.dirty.insert(number);
        self.put(number, Page::Dirty);
        true
    }

    /// Returns true if no further page may become dirty.
    pub(super) fn is_full(&self) -> bool {
        self.dirty.len() + self.writing >= self.size.dirty_max
    }

    /// Returns true if a page is to be written back; plans the next round when a round is complete.
    pub(super) fn has_work(&mut self) -> bool {
        if self.plan.is_empty() && self.dirty.len() > self.size.dirty_background {
            self.plan.extend(&self.dirty);
        }
        !self.plan.is_empty()
    }

    /// Takes the next page to write back.
    pub(super) fn take(&mut self) -> Option<u64> {
        let number = self.plan.pop_front()?;
        self.dirty.remove(&number);
        self.pages.insert(number, Page::Writing);
        self.writing += 1;
        Some(number)
    }

    /// Completes the write-back of pages.
    pub(super) fn written(&mut self, pages: Range<u64>) {
        for number in pages {
            self.writing -= 1;
            self.pages.insert(number, Page::Clean);
            self.clean.push_back(number);
        }
    }
}
