//! Wakes the thread that checks SLOs.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wakes the thread that checks tenants.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    fn lock(&self) -> MutexGuard<'_, bool> {
        // A plain flag, which a panicking thread cannot leave invalid.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, because there may be a tenant to check now.
    pub(crate) fn poke(&self) {
        // Locked, so that the notice arrives before or after the check of `watched`, never between
        // it and the sleep.
        drop(self.lock());
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps until the next check, indefinitely while nothing is `watched`. Returns whether there
    /// will be another check.
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

    /// Regression: the thread woke ten times a second although no device was scheduled.
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
            // Many times the duration of a check.
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
