//! Wakes the thread that checks promises to tenants.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wakes the thread that looks at tenants.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    fn lock(&self) -> MutexGuard<'_, bool> {
        // A plain flag: whatever a panicking thread left is right.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be something to look at from now on.
    pub(crate) fn poke(&self) {
        // Locked, so that it falls before or after a look at what there is, never between that and
        // the sleep.
        drop(self.lock());
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps until it is time to look, without an end while there is nothing that is `watched`.
    /// Returns whether there will be another look.
    pub(super) fn sleep(&self, look: Duration, watched: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        let mut ended = self.lock();
        while !*ended {
            if !watched() {
                ended = self
                    .changed
                    .wait(ended)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = look.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return true;
            }
            let slept = self.changed.wait_timeout(ended, left);
            ended = slept.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// It used to wake ten times a second although no device was scheduled.
    #[test]
    fn nobody_looks_while_there_is_nothing_to_see() {
        let wake = Arc::new(Wake::default());
        let scheduled = Arc::new(AtomicBool::new(false));
        let (asked, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let watched = || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    scheduled.load(Ordering::SeqCst)
                };
                while wake.sleep(Duration::from_millis(1), watched) {
                    looks.fetch_add(1, Ordering::SeqCst);
                }
            });
            while asked.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Many times what a look takes.
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(looks.load(Ordering::SeqCst), 0);
            scheduled.store(true, Ordering::SeqCst);
            wake.poke();
            while looks.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            wake.end();
        });
    }
}
