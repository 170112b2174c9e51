//! The pages of a write-back cache: which are there, which are dirty, and the threads that wait for
//! one.

use super::scenario::CacheSize;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

#[derive(Debug)]
enum Page {
    /// On its way from the device; these threads wait for it.
    Filling(Vec<usize>),
    Clean,
    Dirty,
    /// On its way to the device.
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
    /// Pages in the order in which they became clean; some are no more.
    clean: VecDeque<u64>,
    dirty: BTreeSet<u64>,
    writing: usize,
    /// Dirty pages that are to be written back, in ascending order.
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

    /// A page is on its way from the device.
    pub(super) fn fill(&mut self, page: u64) {
        self.put(page, Page::Filling(Vec::new()));
    }

    /// A thread waits for a page that is on its way.
    pub(super) fn wait(&mut self, number: u64, thread: usize) {
        if let Some(Page::Filling(waiting)) = self.pages.get_mut(&number) {
            waiting.push(thread);
        }
    }

    /// A page is there; returns the threads that waited for it.
    pub(super) fn filled(&mut self, number: u64) -> Vec<usize> {
        let filled = self.pages.insert(number, Page::Clean);
        self.clean.push_back(number);
        match filled {
            Some(Page::Filling(waiting)) => waiting,
            _ => Vec::new(),
        }
    }

    /// Writes a page into the cache, unless too many are dirty; returns whether it did. A page
    /// that is on its way is written once it is there, or clean again.
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

    /// Returns true if a page is to be written back, and plans the next round where the last one
    /// is over.
    pub(super) fn has_work(&mut self) -> bool {
        if self.plan.is_empty() && self.dirty.len() > self.size.dirty_background {
            self.plan.extend(&self.dirty);
        }
        !self.plan.is_empty()
    }

    /// Takes the next page to be written back.
    pub(super) fn take(&mut self) -> Option<u64> {
        let number = self.plan.pop_front()?;
        self.dirty.remove(&number);
        self.pages.insert(number, Page::Writing);
        self.writing += 1;
        Some(number)
    }

    /// Pages were written back.
    pub(super) fn written(&mut self, pages: Range<u64>) {
        for number in pages {
            self.writing -= 1;
            self.pages.insert(number, Page::Clean);
            self.clean.push_back(number);
        }
    }
}
