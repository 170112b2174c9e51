//! A [`ClassLoad`] that other threads read.

use base::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use switch::load::ClassLoad;

/// A load in bytes, sampled as requests come.
///
/// Meant for one writer. Where several threads sample it at once, a sample may be lost; the load
/// remains one that was there a moment ago.
#[derive(Debug, Default)]
pub(super) struct SharedLoad {
    /// [`ClassLoad::to_words`].
    words: [AtomicU64; 2],
}

impl SharedLoad {
    /// A request came; with it `outstanding_bytes` are outstanding.
    #[inline]
    pub(super) fn sample(&self, now: Time, outstanding_bytes: u64) {
        let mut load = self.load();
        load.sample(now, outstanding_bytes);
        for (word, value) in self.words.iter().zip(load.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The average in bytes; 0 after a second without a request.
    pub(super) fn bytes(&self, now: Time) -> u64 {
        self.load().bytes(now)
    }

    #[inline]
    fn load(&self) -> ClassLoad {
        let [scaled, last] = &self.words;
        ClassLoad::from_words([scaled.load(Ordering::Relaxed), last.load(Ordering::Relaxed)])
    }
}
