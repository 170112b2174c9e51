//! The list of done requests for loom: the steps of `crossbeam_queue::ArrayQueue` with the same orders
//! of memory, as loom does not look into that one.

use super::done::Done;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use loom::thread::yield_now;

/// A place of the list. Its stamp is the number of the push that it waits for, and one more once that
/// is done.
#[derive(Debug)]
struct StampedSlot {
    stamp: AtomicUsize,
    /// Its request, in memory that only the stamp orders.
    slot: AtomicU32,
}

/// Requests that are over, all of them well and without losses.
#[derive(Debug)]
pub(super) struct DoneList {
    places: Vec<StampedSlot>,
    head: AtomicUsize,
    tail: AtomicUsize,
}

impl DoneList {
    pub(super) fn new(depth: usize) -> Self {
        let place = |number| StampedSlot {
            stamp: AtomicUsize::new(number),
            slot: AtomicU32::new(u32::MAX),
        };
        Self {
            places: (0..depth).map(place).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
        }
    }

    fn place(&self, number: usize) -> &StampedSlot {
        &self.places[number % self.places.len()]
    }

    pub(super) fn push(&self, done: Done) -> Result<(), Done> {
        assert!(done.result.is_ok() && done.losses.is_none());
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let place = self.place(tail);
            let stamp = place.stamp.load(Ordering::Acquire);
            if stamp == tail {
                let next = tail + 1;
                match self.tail.compare_exchange(tail, next, success, failure) {
                    Ok(_) => {
                        place.slot.store(done.slot, Ordering::Relaxed);
                        place.stamp.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => tail = now,
                }
                continue;
            }
            if stamp + self.places.len() == tail + 1 {
                fence(Ordering::SeqCst);
                if self.head.load(Ordering::Relaxed) + self.places.len() == tail {
                    return Err(done);
                }
            }
            yield_now();
            tail = self.tail.load(Ordering::Relaxed);
        }
    }

    pub(super) fn pop(&self) -> Option<Done> {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let place = self.place(head);
            let stamp = place.stamp.load(Ordering::Acquire);
            if stamp == head + 1 {
                let next = head + 1;
                match self.head.compare_exchange(head, next, success, failure) {
                    Ok(_) => {
                        let slot = place.slot.load(Ordering::Relaxed);
                        let stamp = head + self.places.len();
                        place.stamp.store(stamp, Ordering::Release);
                        return Some(Done {
                            slot,
                            result: Ok(()),
                            losses: None,
                        });
                    }
                    Err(now) => head = now,
                }
                continue;
            }
            if stamp == head {
                fence(Ordering::SeqCst);
                if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
            }
            yield_now();
            head = self.head.load(Ordering::Relaxed);
        }
    }

    pub(super) fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::SeqCst);
        tail - self.head.load(Ordering::SeqCst)
    }

    pub(super) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::SeqCst);
        self.tail.load(Ordering::SeqCst) == head
    }
}
