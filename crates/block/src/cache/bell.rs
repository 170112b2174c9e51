//! The bell of a channel: rung when something that the channel waits for has changed.

use reactor::{Sleeper, Wake};
use std::sync::Arc;
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

    /// Tells the channel to look again, and wakes its thread where that is needed.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.sleeper.ring();
    }

    /// The channel looks again.
    pub(super) fn answer(&self) {
        self.sleeper.awake();
        if self.rung.load(Ordering::Relaxed) {
            self.rung.swap(false, Ordering::Acquire);
        }
    }

    /// The channel wants to sleep; returns whether it may.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeper
            .may_sleep(|| !self.rung.load(Ordering::Relaxed))
    }
}
