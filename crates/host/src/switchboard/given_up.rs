//! Marks of requests that their submitter gave up, and the flag that has a dataplane thread look for
//! them.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Has a dataplane thread look, once for all submitters that asked for it before.
#[derive(Debug)]
pub(super) struct LookFlag(AtomicBool);

impl LookFlag {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Asks for a look, by any thread.
    pub(super) fn raise(&self) {
        // An exchange, so that the look finds the marks of all submitters that asked, not of the last.
        self.0.swap(true, Ordering::AcqRel);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Returns true if a look was asked for, once.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

/// Slots of which the submitter gave the request up.
#[derive(Debug)]
pub(super) struct GivenUpSlots {
    /// A mark is taken away before the slot gets another request, so a thread that sees it has no
    /// newer request under that slot.
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

    /// The submitter gives up the request in the slot.
    pub(super) fn mark(&self, slot: u32) {
        if !self.marks[slot as usize].swap(true, Ordering::Release) {
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    /// The request in the slot is over, whether it was given up or not. Said by the submitter.
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

    /// The slots of which the request was given up.
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

    /// Two submitters give a request up each while the thread looks.
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

    /// A submitter gives a request up, and puts another one into its slot when it is over.
    #[test]
    fn loom_the_next_request_of_a_slot_is_not_taken_for_one_that_was_given_up() {
        loom::model(|| {
            let slots = Arc::new(GivenUpSlots::new(2));
            // The numbers of the last request that was put in, and of the last that was answered.
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
