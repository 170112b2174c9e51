//! The bell of a channel: rung when a page, claim or write-back for which the channel waits has
//! changed.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
use reactor::{Sleeper, Wake};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

/// A channel's bell.
#[derive(Debug)]
pub(super) struct Bell {
    rung: AtomicBool,
    sleeper: Sleeper,
}

impl Bell {
    pub(super) fn new(waker: Arc<dyn Wake>) -> Self {
        Self {
            rung: AtomicBool::new(false),
            sleeper: Sleeper::new(waker),
        }
    }

    /// Makes the channel check again, and wakes its thread if necessary.
    pub(super) fn ring(&self) {
        // An exchange, so that the channel sees the changes of all threads that rang, not only of
        // the last.
        self.rung.swap(true, Ordering::AcqRel);
        self.sleeper.ring();
    }

    /// Clears the bell before the channel checks again.
    pub(super) fn answer(&self) {
        self.sleeper.awake();
        if self.rung.load(Ordering::Relaxed) {
            self.rung.swap(false, Ordering::Acquire);
        }
    }

    /// Called before the channel sleeps. Returns true if it may sleep.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeper
            .may_sleep(|| !self.rung.load(Ordering::Relaxed))
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::path::loom_tests::Sleep;
    use loom::sync::atomic::AtomicBool;

    /// Two threads change memory that only the bell orders: the channel sees both changes, whenever
    /// it falls asleep.
    #[test]
    fn loom_no_change_is_overlooked() {
        let mut builder = loom::model::Builder::new();
        // More preemptions take minutes.
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let sleep = Arc::new(Sleep::new());
            let bell = Arc::new(Bell::new(Arc::clone(&sleep) as Arc<dyn Wake>));
            let changes = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let threads: Vec<_> = (0..2)
                .map(|number| {
                    let (bell, changes) = (Arc::clone(&bell), Arc::clone(&changes));
                    loom::thread::spawn(move || {
                        changes[number].store(true, Ordering::Relaxed);
                        bell.ring();
                    })
                })
                .collect();
            loop {
                bell.answer();
                let seen = |change: &AtomicBool| change.load(Ordering::Relaxed);
                if changes.iter().all(seen) {
                    break;
                }
                if bell.may_sleep() {
                    sleep.wait();
                }
            }
            for thread in threads {
                thread.join().expect("it does not panic");
            }
        });
    }
}
