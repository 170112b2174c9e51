//! A bounded multi-producer, single-consumer queue that never waits for another thread.
//!
//! A producer claims a slot, writes its element and publishes the slot. A producer preempted in
//! between delays later elements, but blocks no thread: [`take`] returns `None` meanwhile. So the
//! consumer may then sleep; a producer wakes it after the push (see [`WakeFlag`](crate::WakeFlag)).
//!
//! [`take`]: BoundedQueue::take
#![allow(unsafe_code)] // Elements are in memory that the slots' stamps order.

#[cfg(not(loom))]
use self::cell::UnsafeCell;
#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
use std::fmt;
use std::mem::MaybeUninit;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded queue of elements in the order of their pushes.
pub struct BoundedQueue<T> {
    /// Number of slots: a power of two, at least 2.
    slots: Box<[QueueSlot<T>]>,
    /// Number of the next element to take.
    head: Padded,
    /// Number of the next element to push.
    tail: Padded,
}

/// A slot: for elements whose number modulo the number of slots is its index.
struct QueueSlot<T> {
    /// Number of the next element to write here; one more while it is published.
    stamp: AtomicUsize,
    element: UnsafeCell<MaybeUninit<T>>,
}

/// A counter on its own cache lines.
#[repr(align(128))]
struct Padded(AtomicUsize);

// SAFETY: a slot's element is written by the thread that claimed its number and read by the thread
// that took that number, each once, and the stamp orders the two. Elements move between threads.
unsafe impl<T: Send> Sync for BoundedQueue<T> {}

impl<T: Copy + Send> BoundedQueue<T> {
    /// An empty queue with room for at least `capacity` elements: the next power of two, and at
    /// least two.
    ///
    /// # Panics
    /// If that exceeds the address space.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let slot = |number| QueueSlot {
            stamp: AtomicUsize::new(number),
            element: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self {
            slots: (0..capacity.next_power_of_two().max(2)).map(slot).collect(),
            head: Padded(AtomicUsize::new(0)),
            tail: Padded(AtomicUsize::new(0)),
        }
    }

    #[inline]
    fn slot(&self, number: usize) -> &QueueSlot<T> {
        &self.slots[number & (self.slots.len() - 1)]
    }

    /// Appends an element.
    ///
    /// # Errors
    /// The element, if the queue is full. Never full if each element belongs to one of at most
    /// `capacity` requests and each is pushed once.
    #[inline]
    pub fn push(&self, element: T) -> Result<(), T> {
        let Some(number) = self.claim() else {
            return Err(element);
        };
        self.publish(number, element);
        Ok(())
    }

    /// Claims the next number. [`publish`](Self::publish) must follow.
    #[inline]
    fn claim(&self) -> Option<usize> {
        // Acquire, and release below: each take that made room for this number happened before an
        // earlier push or before this push. So producers never see a stale stamp here if the
        // consumer limits its outstanding requests to the capacity.
        let mut tail = self.tail.0.load(Ordering::Acquire);
        loop {
            if self.slot(tail).stamp.load(Ordering::Acquire) == tail {
                let next = tail.wrapping_add(1);
                match self.tail.0.compare_exchange_weak(
                    tail,
                    next,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => return Some(tail),
                    Err(now) => tail = now,
                }
                continue;
            }
            // Full, unless another producer has advanced the tail.
            let now = self.tail.0.load(Ordering::Acquire);
            if now == tail {
                return None;
            }
            tail = now;
        }
    }

    /// Writes the element of a claimed number and publishes it.
    #[inline]
    fn publish(&self, number: usize, element: T) {
        let slot = self.slot(number);
        slot.element.with_mut(|place| {
            // SAFETY: the slot belongs to the thread that claimed the number until the stamp marks
            // it as published; no other thread reads or writes it before.
            unsafe { *place = MaybeUninit::new(element) }
        });
        slot.stamp.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Removes the oldest element; `None` if there is none or it is not published yet.
    #[inline]
    pub fn take(&self) -> Option<T> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(head);
            let next = head.wrapping_add(1);
            if slot.stamp.load(Ordering::Acquire) != next {
                return None;
            }
            // A single consumer needs no exchange. It makes a second consumer harmless, at a cost
            // of a few nanoseconds.
            let order = Ordering::Relaxed;
            match self.head.0.compare_exchange(head, next, order, order) {
                Ok(_) => {
                    let element = slot.element.with(|place| {
                        // SAFETY: the exchange gave the slot to this thread alone; no producer
                        // writes it before the stamp below.
                        let place = unsafe { *place };
                        // SAFETY: the number was published, so the element is written.
                        unsafe { place.assume_init() }
                    });
                    let free = head.wrapping_add(self.slots.len());
                    slot.stamp.store(free, Ordering::Release);
                    return Some(element);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Returns true if [`take`](Self::take) would return `None`. Only for the consumer.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        self.slot(head).stamp.load(Ordering::Acquire) != head.wrapping_add(1)
    }

    /// Returns the number of elements, including unpublished ones. Only for the consumer.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let tail = self.tail.0.load(Ordering::Relaxed);
        tail.wrapping_sub(self.head.0.load(Ordering::Relaxed))
    }
}

impl<T> fmt::Debug for BoundedQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BoundedQueue");
        debug.field("slots", &self.slots.len());
        debug.finish_non_exhaustive()
    }
}

/// The cell of loom's interface, without its checks.
#[cfg(not(loom))]
mod cell {
    /// Memory that is written through a shared reference.
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn elements_come_in_order_and_those_without_room_come_back() {
        let queue = BoundedQueue::new(3);
        for round in 0..5 {
            assert!(queue.is_empty());
            assert_eq!(queue.take(), None);
            for element in 0..4 {
                assert_eq!(queue.len(), element);
                assert_eq!(queue.push(round * 10 + element), Ok(()));
            }
            assert_eq!(queue.push(99), Err(99), "four slots");
            for element in 0..3 {
                assert!(!queue.is_empty());
                assert_eq!(queue.take(), Some(round * 10 + element));
            }
            assert_eq!(queue.push(99), Ok(()));
            assert_eq!(queue.take(), Some(round * 10 + 3));
            assert_eq!(queue.take(), Some(99));
        }
    }

    #[test]
    fn the_smallest_queue_overwrites_nothing() {
        let queue = BoundedQueue::new(1);
        for round in 0..5 {
            assert_eq!(queue.push((round, 0)), Ok(()));
            assert_eq!(queue.push((round, 1)), Ok(()));
            assert_eq!(queue.push((round, 2)), Err((round, 2)));
            assert_eq!(queue.take(), Some((round, 0)));
            assert_eq!(queue.take(), Some((round, 1)));
            assert_eq!(queue.take(), None);
        }
    }

    /// The consumer must not wait for such a producer: it would spin while the kernel does not run
    /// the producer, 884 ms were measured at a better nice value.
    #[test]
    fn a_producer_that_stops_before_it_publishes_delays_no_consumer() {
        let queue = BoundedQueue::new(4);
        assert_eq!(queue.push(1), Ok(()));
        let stopped = queue.claim().expect("there is room");
        assert_eq!(queue.push(3), Ok(()), "nor another producer");
        assert_eq!(queue.take(), Some(1));
        assert_eq!(queue.take(), None);
        assert!(queue.is_empty(), "the consumer may sleep: a push wakes it");
        assert_eq!(queue.len(), 2);
        queue.publish(stopped, 2);
        assert_eq!(queue.take(), Some(2));
        assert_eq!(queue.take(), Some(3));
        assert!(queue.is_empty());
    }

    #[test]
    fn producers_get_the_place_of_one_that_stopped_when_it_was_taken() {
        let queue = BoundedQueue::new(2);
        let stopped = queue.claim().expect("there is room");
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(3));
        queue.publish(stopped, 1);
        assert_eq!(queue.push(3), Err(3));
        assert_eq!(queue.take(), Some(1));
        assert_eq!(queue.push(3), Ok(()));
        assert_eq!((queue.take(), queue.take()), (Some(2), Some(3)));
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::WakeFlag;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    fn builder() -> loom::model::Builder {
        let mut builder = loom::model::Builder::new();
        // More preemptions take minutes.
        builder.preemption_bound = Some(3);
        builder
    }

    struct Shared {
        queue: BoundedQueue<usize>,
        flag: WakeFlag,
        sleep: Notify,
    }

    impl Shared {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                queue: BoundedQueue::new(2),
                flag: WakeFlag::new(),
                sleep: Notify::new(),
            })
        }

        fn push(&self, element: usize) {
            self.queue.push(element).expect("there is room");
            if self.flag.is_needed() {
                self.sleep.notify();
            }
        }

        /// Sleeps until there is an element.
        fn wait(&self) -> usize {
            loop {
                self.flag.awake();
                if let Some(element) = self.queue.take() {
                    return element;
                }
                if self.flag.may_sleep(|| self.queue.is_empty()) {
                    self.sleep.wait();
                }
            }
        }
    }

    #[test]
    fn loom_each_element_is_taken_once_and_none_is_slept_through() {
        builder().check(|| {
            let shared = Shared::new();
            let theirs = Arc::clone(&shared);
            let producer = thread::spawn(move || {
                theirs.push(0);
            });
            let (theirs, own) = (Arc::clone(&shared), Arc::clone(&shared));
            let other = thread::spawn(move || theirs.push(1));
            let mut taken = [own.wait(), own.wait()];
            taken.sort_unstable();
            assert_eq!(taken, [0, 1]);
            producer.join().expect("it does not panic");
            other.join().expect("it does not panic");
            assert!(shared.queue.is_empty());
        });
    }

    /// With as many outstanding requests as the queue has room for, the completion of each finds
    /// room, from any thread and with any stale view of the queue.
    #[test]
    fn loom_a_queue_with_room_for_all_requests_is_never_full() {
        builder().check(|| {
            let queue = std::sync::Arc::new(BoundedQueue::new(2));
            let theirs = std::sync::Arc::clone(&queue);
            let late = thread::spawn(move || theirs.push(0).expect("there is room"));
            let mut taken = Vec::new();
            for element in 1..4 {
                queue.push(element).expect("there is room");
                // A taken element makes room for the next request.
                match queue.take() {
                    Some(element) => taken.push(element),
                    None => break,
                }
            }
            late.join().expect("it does not panic");
            taken.extend(std::iter::from_fn(|| queue.take()));
            let pushed = taken.len();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), pushed, "each once");
            assert!(taken.contains(&0) && taken.contains(&1));
        });
    }

    /// The producer continues only after the consumer's check: in a queue that waits for it,
    /// neither would continue.
    #[test]
    fn loom_a_producer_that_stops_before_it_publishes_delays_no_consumer() {
        builder().check(|| {
            let shared = Shared::new();
            let goes_on = Arc::new(Notify::new());
            let (theirs, told) = (Arc::clone(&shared), Arc::clone(&goes_on));
            let producer = thread::spawn(move || {
                let number = theirs.queue.claim().expect("there is room");
                told.wait();
                theirs.queue.publish(number, 1);
                if theirs.flag.is_needed() {
                    theirs.sleep.notify();
                }
            });
            assert_eq!(shared.queue.take(), None);
            goes_on.notify();
            assert_eq!(shared.wait(), 1);
            producer.join().expect("it does not panic");
        });
    }
}
