//! Marks of given-up requests, and the flag that makes a dataplane thread search for them.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Requests one search of a dataplane thread for all submitters that raised it before.
#[derive(Debug)]
pub(super) struct LookFlag(AtomicBool);

impl LookFlag {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Requests a search, from any thread.
    pub(super) fn raise(&self) {
        // An exchange, so that the search sees the marks of all submitters that raised it, not only
        // of the last.
        self.0.swap(true, Ordering::AcqRel);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Returns true if a search was requested, and clears the flag.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

/// Slots whose request the submitter gave up.
#[derive(Debug)]
pub(super) struct GivenUpSlots {
    /// A mark is cleared before the slot is reused, so a thread that sees it has no newer request
    /// in that slot.
    marks: Box<[AtomicBool]>,
    /// Number of marks.
    count: AtomicU32,
}

impl GivenUpSlots {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            marks: (0..depth).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicU32::new(0),
        }
    }

    /// Marks the request in the slot as given up. Called by the submitter.
    pub(super) fn mark(&self, slot: u32) {
        if !self.marks[slot as usize].swap(true, Ordering::Release) {
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    /// Clears the mark after the request in the slot has ended, given up or not. Called by the
    /// submitter.
    #[inline]
    pub(super) fn clear(&self, slot: u32) {
        // No other thread marks slots.
        if self.count.load(Ordering::Relaxed) > 0
            && self.marks[slot as usize].swap(false, Ordering::Relaxed)
        {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if the request in the slot was given up.
    #[inline]
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.marks[slot as usize].load(Ordering::Acquire)
    }

    /// Returns the slots whose request was given up.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let slots = 0..u32::try_from(self.marks.len()).expect("at most 4,096");
        slots.filter(|&slot| self.contains(slot))
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two submitters give up a request each during the search.
    #[test]
    fn loom_no_request_that_was_given_up_is_overlooked() {
        loom::model(|| {
            let flag = Arc::new(LookFlag::new());
            let slots = [(); 2].map(|()| Arc::new(GivenUpSlots::new(1)));
            let submitters = slots.clone().map(|slots| {
                let flag = flag.clone();
                thread::spawn(move || {
                    slots.mark(0);
                    flag.raise();
                })
            });
            let mut found = [false; 2];
            let mut look = || {
                if flag.take() {
                    for (found, slots) in found.iter_mut().zip(&slots) {
                        *found |= slots.iter().next().is_some();
                    }
                }
                found
            };
            look();
            let raised = flag.is_raised();
            let found = look();
            assert!(!raised || found.contains(&true));
            for submitter in submitters {
                submitter.join().unwrap();
            }
            assert_eq!(look(), [true; 2]);
        });
    }

    /// A submitter gives up a request, and reuses its slot when the request has ended.
    #[test]
    fn loom_the_next_request_of_a_slot_is_not_taken_for_one_that_was_given_up() {
        loom::model(|| {
            let slots = Arc::new(GivenUpSlots::new(2));
            // The numbers of the last submitted and the last answered request.
            let [put, answered] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
            let submitter = {
                let (slots, put, answered) = (slots.clone(), put.clone(), answered.clone());
                thread::spawn(move || {
                    put.store(1, Ordering::Release);
                    slots.mark(0);
                    slots.mark(1);
                    if answered.load(Ordering::Acquire) == 1 {
                        slots.clear(0);
                        put.store(2, Ordering::Release);
                    }
                })
            };
            for _ in 0..2 {
                let taken = put.load(Ordering::Acquire);
                let is_given_up = slots.contains(0);
                assert!(taken < 2 || !is_given_up, "it is the next one");
                answered.store(taken, Ordering::Release);
            }
            submitter.join().unwrap();
            let next = put.load(Ordering::Relaxed) == 2;
            assert_eq!([slots.contains(0), slots.contains(1)], [!next, true]);
        });
    }
}
