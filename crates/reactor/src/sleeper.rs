//! A thread that sleeps while it has nothing to do, as the threads that bring it work see it.

use crate::driver::Wake;
use base::WakeFlag;
use std::sync::{Arc, OnceLock};

/// The [wake flag](WakeFlag) of a thread, with the way to wake it. [`default`](Self::default) is
/// the sleeper of a thread that does not exist yet.
#[derive(Debug, Default)]
pub struct Sleeper {
    wake_flag: WakeFlag,
    waker: OnceLock<Arc<dyn Wake>>,
}

impl Sleeper {
    /// The sleeper of the thread that `waker` wakes.
    #[must_use]
    pub fn new(waker: Arc<dyn Wake>) -> Self {
        Self {
            wake_flag: WakeFlag::default(),
            waker: waker.into(),
        }
    }

    /// The thread exists now. Called once, by that thread.
    pub fn serve(&self, waker: Arc<dyn Wake>) {
        let _ = self.waker.set(waker);
    }

    /// Wakes the thread, where that is needed: after work was put into a queue of it.
    #[inline]
    pub fn ring(&self) {
        if self.wake_flag.is_needed() {
            self.wake();
        }
    }

    /// Wakes the thread, whatever it does.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// As [`WakeFlag::may_sleep`].
    #[inline]
    pub fn may_sleep(&self, idle: impl FnOnce() -> bool) -> bool {
        self.wake_flag.may_sleep(idle)
    }

    /// As [`WakeFlag::awake`].
    #[inline]
    pub fn awake(&self) {
        self.wake_flag.awake();
    }
}
