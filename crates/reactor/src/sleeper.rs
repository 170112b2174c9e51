//! The wake-up state of a thread that sleeps while idle, as used by the threads that send it work.

use crate::driver::Wake;
use base::WakeFlag;
use std::sync::{Arc, OnceLock};

/// The [wake flag](WakeFlag) and waker of a thread. [`default`](Self::default) is for a thread that
/// does not exist yet.
#[derive(Debug, Default)]
pub struct Sleeper {
    wake_flag: WakeFlag,
    waker: OnceLock<Arc<dyn Wake>>,
}

impl Sleeper {
    /// Creates the sleeper of the thread that `waker` wakes.
    #[must_use]
    pub fn new(waker: Arc<dyn Wake>) -> Self {
        Self {
            wake_flag: WakeFlag::default(),
            waker: waker.into(),
        }
    }

    /// Sets the waker of a newly created thread. Called once, by that thread.
    pub fn serve(&self, waker: Arc<dyn Wake>) {
        let _ = self.waker.set(waker);
    }

    /// Wakes the thread if necessary, after work was queued for it.
    #[inline]
    pub fn ring(&self) {
        if self.wake_flag.is_needed() {
            self.wake();
        }
    }

    /// Wakes the thread unconditionally.
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
