//! Looks now and then whether promises to tenants are kept, on a thread that sleeps while nobody is
//! promised anything.
//!
//! Started with a running target, ended with it. Whoever adds a namespace whose device is scheduled
//! says so by [`Wake::poke`].

use crate::limits::SLO_WINDOW;
use crate::target::Target;
use qos::limits::OVERRUN_WINDOW;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

    fn end(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps until it is time to look, without an end while there is nothing that is `watched`.
    /// Returns whether there will be another look.
    fn sleep(&self, look: Duration, watched: impl Fn() -> bool) -> bool {
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

/// Ends the thread by being dropped.
#[derive(Debug)]
pub(crate) struct Watch(Arc<Wake>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Looks at tenants now and then, until what is returned is dropped.
pub(crate) fn start(target: &Arc<Target>) -> Watch {
    let watch = Watch(Arc::clone(&target.tenant_wake));
    let target = Arc::clone(target);
    let look = move || {
        let mut window = Instant::now();
        let watched = || target.is_anything_scheduled();
        while target.tenant_wake.sleep(OVERRUN_WINDOW.into(), watched) {
            let window_ends = window.elapsed() >= SLO_WINDOW.into();
            if window_ends {
                window = Instant::now();
            }
            target.look_at_tenants(window_ends);
        }
    };
    let thread = std::thread::Builder::new().name("tenants".to_owned());
    if let Err(error) = thread.spawn(look) {
        tracing::error!(%error, "nobody looks whether promises to tenants are kept");
    }
    watch
}

#[cfg(test)]
mod tests {
    use super::*;
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
