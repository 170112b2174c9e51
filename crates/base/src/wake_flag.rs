//! The wake flag: lets producers wake a sleeping thread only if necessary.
//!
//! A wake-up costs a system call, so it is issued only for a thread that sleeps or is about to. The
//! consumer sets the flag *before* its last check of its queues; a producer adds work *before* it
//! reads the flag. So one of them always sees the other, and no work waits while the thread sleeps.
//! The flag belongs to the consumer of the queues; any number of producers may use it.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A flag that is set while its thread sleeps, or is about to.
#[derive(Debug)]
pub struct WakeFlag {
    asleep: AtomicBool,
}

impl Default for WakeFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl WakeFlag {
    /// A thread that is awake.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            asleep: AtomicBool::new(false),
        }
    }

    /// A thread that is awake.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            asleep: AtomicBool::new(false),
        }
    }

    /// Prepares to sleep. Returns true if `idle`, which checks the queues, finds no work.
    #[inline]
    pub fn may_sleep(&self, idle: impl FnOnce() -> bool) -> bool {
        self.set(true);
        // Orders the store before the check, as `is_needed` orders the push before its check.
        fence(Ordering::SeqCst);
        if idle() {
            return true;
        }
        self.set(false);
        false
    }

    #[inline]
    fn set(&self, asleep: bool) {
        #[cfg(not(loom))]
        self.asleep.store(asleep, Ordering::Relaxed);
        // Loom has a total order of exchanges on a location, but not of plain stores: with stores,
        // a thread that sleeps twice is lost in orders that do not exist.
        #[cfg(loom)]
        self.asleep.swap(asleep, Ordering::Relaxed);
    }

    /// Notes that the thread is awake and checks its queues.
    #[inline]
    pub fn awake(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.set(false);
        }
    }

    /// Called after adding work: returns true if the thread must be woken. Of concurrent producers,
    /// exactly one gets true.
    #[inline]
    #[must_use]
    pub fn is_needed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_once() {
        let wake_flag = WakeFlag::new();
        assert!(!wake_flag.is_needed(), "it is awake");
        assert!(!wake_flag.may_sleep(|| false), "there is work");
        assert!(!wake_flag.is_needed());
        assert!(wake_flag.may_sleep(|| true));
        assert!(wake_flag.is_needed());
        assert!(!wake_flag.is_needed(), "another thread wakes it already");
        assert!(wake_flag.may_sleep(|| true));
        wake_flag.awake();
        assert!(!wake_flag.is_needed());
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Two producers add work while the thread falls asleep: in any order, it either finds the work
    /// of both, or is woken.
    #[test]
    fn no_work_is_left_lying_while_its_thread_sleeps() {
        let mut model = loom::model::Builder::new();
        // Three preemptions suffice to break each half of the protocol; more take minutes.
        model.preemption_bound = Some(3);
        model.check(|| {
            let wake_flag = Arc::new(WakeFlag::new());
            let queue = Arc::new(AtomicUsize::new(0));
            let wakes = Arc::new(AtomicUsize::new(0));
            let producers: Vec<_> = (0..2)
                .map(|_| {
                    let (wake_flag, queue, wakes) =
                        (wake_flag.clone(), queue.clone(), wakes.clone());
                    thread::spawn(move || {
                        queue.fetch_add(1, Ordering::Release);
                        if wake_flag.is_needed() {
                            wakes.fetch_add(1, Ordering::Release);
                        }
                    })
                })
                .collect();
            let mut found = queue.swap(0, Ordering::Acquire);
            let slept = wake_flag.may_sleep(|| queue.load(Ordering::Acquire) == 0);
            for producer in producers {
                producer.join().unwrap();
            }
            found += queue.load(Ordering::Acquire);
            let lying = queue.load(Ordering::Acquire) > 0;
            assert_eq!(found, 2);
            assert!(!slept || !lying || wakes.load(Ordering::Acquire) > 0);
            assert!(wakes.load(Ordering::Acquire) <= 1);
        });
    }
}
