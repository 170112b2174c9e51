//! The bell of a channel: rung when something that the channel waits for has changed.

use base::WakeFlag;
use reactor::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A channel's bell.
#[derive(Debug)]
pub(super) struct Bell {
    rung: AtomicBool,
    wake_flag: WakeFlag,
    waker: Arc<dyn Wake>,
}

impl Bell {
    pub(super) fn new(waker: Arc<dyn Wake>) -> Self {
        Self {
            rung: AtomicBool::new(false),
            wake_flag: WakeFlag::new(),
            waker,
        }
    }

    /// Tells the channel to look again, and wakes its thread where that is needed.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        if self.wake_flag.is_needed() {
            self.waker.wake();
        }
    }

    /// The channel looks again.
    pub(super) fn answer(&self) {
        self.wake_flag.awake();
        if self.rung.load(Ordering::Relaxed) {
            self.rung.swap(false, Ordering::Acquire);
        }
    }

    /// The channel wants to sleep; returns whether it may.
    pub(super) fn may_sleep(&self) -> bool {
        self.wake_flag
            .may_sleep(|| !self.rung.load(Ordering::Relaxed))
    }
}
