//! Changes of the configuration, delivered to every core and acknowledged by each.
//!
//! A control plane changes the shared configuration and posts
//! [steps](crate::change::step::ChangeStep) to all cores. A core acknowledges a completed step on
//! the change's [`Ack`]; a step that must wait (a namespace with commands in flight) is
//! acknowledged when it completes. The caller waits for all cores; after a bounded time it stops
//! waiting and undoes the change.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts the cores that have not acknowledged a change yet.
#[derive(Debug)]
pub(crate) struct Ack {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    missing: usize,
    error: Option<String>,
}

/// Why a change failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    /// A core failed to apply it.
    #[error("{0}")]
    Failed(String),
    /// Not every core answered in time.
    #[error("{missing} of the cores did not finish within {waited_ms} ms")]
    TimedOut { missing: usize, waited_ms: u128 },
}

impl Ack {
    /// Creates an acknowledgement for `cores` cores.
    pub(crate) fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self {
            progress: Mutex::new(Progress {
                missing: cores,
                error: None,
            }),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Two plain fields, which a panicking thread leaves consistent.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acknowledges the change for a core.
    pub(crate) fn done(&self, result: Result<(), String>) {
        let mut progress = self.lock();
        progress.missing = progress.missing.saturating_sub(1);
        if let Err(error) = result {
            progress.error.get_or_insert(error);
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Returns the outcome, once every core has acknowledged.
    pub(crate) fn poll(&self) -> Option<Result<(), AckError>> {
        let progress = self.lock();
        (progress.missing == 0).then(|| match &progress.error {
            None => Ok(()),
            Some(error) => Err(AckError::Failed(error.clone())),
        })
    }

    /// Waits for every core, for at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<(), AckError> {
        let begin = Instant::now();
        let ran = run(&|| self.poll().is_some(), timeout);
        loop {
            if let Some(result) = self.poll() {
                return result;
            }
            let waited = if ran { timeout } else { begin.elapsed() };
            let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
                let missing = self.lock().missing;
                return Err(AckError::TimedOut {
                    missing,
                    waited_ms: waited.as_millis(),
                });
            };
            let progress = self.lock();
            if progress.missing > 0 {
                drop(self.changed.wait_timeout(progress, left));
            }
        }
    }
}

/// The acknowledgement of one core: given when dropped, so that a core that ends never leaves the
/// caller waiting.
#[derive(Debug)]
pub(crate) struct Pausing {
    ack: Arc<Ack>,
    result: Result<(), String>,
}

impl Pausing {
    pub(crate) fn new(ack: &Arc<Ack>) -> Self {
        Self {
            ack: Arc::clone(ack),
            result: Ok(()),
        }
    }

    pub(crate) fn fail(&mut self, error: String) {
        if self.result.is_ok() {
            self.result = Err(error);
        }
    }
}

impl Drop for Pausing {
    fn drop(&mut self) {
        self.ack.done(std::mem::replace(&mut self.result, Ok(())));
    }
}

/// Runs the cores until the condition holds, or until the given duration of their time has passed.
pub type Waiter = Box<dyn FnMut(&dyn Fn() -> bool, Duration)>;

thread_local! {
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// Makes `change`; each wait for the cores calls `waiter`, which runs them on this thread instead.
pub fn wait_by<R>(waiter: Waiter, change: impl FnOnce() -> R) -> R {
    WAITER.set(Some(waiter));
    let result = change();
    WAITER.set(None);
    result
}

/// Runs the cores with this thread's waiter until `done`, for at most `timeout`. Returns false if
/// the thread has no waiter.
pub(crate) fn run(done: &dyn Fn() -> bool, timeout: Duration) -> bool {
    let Some(mut waiter) = WAITER.take() else {
        return false;
    };
    waiter(done, timeout);
    WAITER.set(Some(waiter));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_hears_of_success_failure_and_silence() {
        let ack = Ack::new(2);
        drop(Pausing::new(&ack));
        assert_eq!(ack.poll(), None);
        let silent = ack.wait(Duration::from_millis(1));
        assert!(matches!(silent, Err(AckError::TimedOut { missing: 1, .. })));
        let mut second = Pausing::new(&ack);
        second.fail("no such file".to_owned());
        drop(second);
        let failed = ack.wait(Duration::from_secs(10));
        assert_eq!(failed, Err(AckError::Failed("no such file".to_owned())));
    }
}
