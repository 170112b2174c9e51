//! Keeps a processor awake for a thread that must not poll.
//!
//! Waking an idle processor costs about 50 µs. A thread that expects work soon avoids that by
//! polling, but a high-priority thread must not poll: the other threads of its processor would
//! starve. So it sleeps, and an idle spinner of the lowest priority runs meanwhile. The spinner
//! yields to every other thread at once, and keeps the processor awake for arriving work. It stops
//! when nothing was expected for a while, so an idle processor costs nothing.

use crate::placement::{PlacementError, name_thread, pin_to};
use crate::priority::yield_to_all;
use base::WakeFlag;
use base::units::CoreId;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time that the idle spinner runs after work was last expected: the duration of a request to
/// another core, including that core's wake-up.
const EXPECTED_WITHIN: Duration = Duration::from_micros(200);

#[derive(Debug)]
struct SpinnerState {
    epoch: Instant,
    /// Nanoseconds since the epoch at which work was last expected.
    expected: AtomicU64,
    wake_flag: WakeFlag,
    stop: AtomicBool,
}

impl SpinnerState {
    fn new() -> Self {
        Self {
            epoch: Instant::now(),
            expected: AtomicU64::new(0),
            wake_flag: WakeFlag::new(),
            stop: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_expecting(&self) -> bool {
        let since = self
            .now()
            .saturating_sub(self.expected.load(Ordering::Acquire));
        u128::from(since) < EXPECTED_WITHIN.as_nanos()
    }

    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            while self.is_expecting() {
                std::hint::spin_loop();
            }
            self.rest(|| self.is_expecting(), thread::park);
        }
    }

    /// Parks the idle spinner, unless work is expected or it is stopping.
    fn rest(&self, is_expecting: impl Fn() -> bool, park: impl FnOnce()) {
        let idle = || !is_expecting() && !self.stop.load(Ordering::Acquire);
        if self.wake_flag.may_sleep(idle) {
            park();
        }
        self.wake_flag.awake();
    }

    /// Records that work was expected at `now`. Returns true if the idle spinner must be woken.
    #[inline]
    fn expect(&self, now: u64) -> bool {
        self.expected.store(now, Ordering::Release);
        self.wake_flag.is_needed()
    }
}

/// A thread of the lowest priority that keeps one processor awake.
#[derive(Debug)]
pub struct IdleSpinner {
    shared: Arc<SpinnerState>,
    thread: Option<JoinHandle<()>>,
}

impl IdleSpinner {
    /// Starts an idle spinner for `core`.
    ///
    /// # Errors The thread cannot be started, pinned or lowered in priority; it must not run
    /// without these.
    pub fn start(core: CoreId) -> Result<Self, PlacementError> {
        let shared = Arc::new(SpinnerState::new());
        let (ready, started) = std::sync::mpsc::channel();
        let inner = Arc::clone(&shared);
        let kernel = |source| PlacementError::Kernel {
            what: "start a thread that keeps a core awake",
            source,
        };
        let thread = thread::Builder::new()
            .spawn(move || {
                // The name matters only to diagnostic tools.
                let _ = name_thread("idle-spinner");
                let placed = pin_to(core).and_then(|()| {
                    yield_to_all().map_err(|source| PlacementError::Kernel {
                        what: "give a thread the lowest priority",
                        source,
                    })
                });
                let run = placed.is_ok();
                // The starting thread waits for it.
                let _ = ready.send(placed);
                if run {
                    inner.run();
                }
            })
            .map_err(kernel)?;
        let mut idle_spinner = Self {
            shared,
            thread: Some(thread),
        };
        match started.recv() {
            Ok(Ok(())) => Ok(idle_spinner),
            Ok(Err(error)) => {
                idle_spinner.end();
                Err(error)
            }
            Err(_) => Err(kernel(std::io::ErrorKind::Other.into())),
        }
    }

    /// Announces work: the processor stays awake for a while. Costs a system call only if the idle
    /// spinner is asleep.
    #[inline]
    pub fn expect(&self) {
        if self.shared.expect(self.shared.now())
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // An idle spinner returns nothing and does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for IdleSpinner {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::placement::allowed_cores;

    #[test]
    fn an_idle_spinner_sleeps_wakes_when_told_and_ends() {
        let core = allowed_cores().expect("the kernel tells")[0];
        let idle_spinner = IdleSpinner::start(core).expect("no privilege is needed");
        for _ in 0..3 {
            while !idle_spinner.shared.expect(0) {
                thread::yield_now();
            }
            let thread = idle_spinner.thread.as_ref().expect("it runs");
            thread.thread().unpark();
        }
    }

    #[test]
    fn an_idle_spinner_for_a_core_that_is_not_there_says_so() {
        let error = IdleSpinner::start(CoreId(1023)).expect_err("no machine has so many");
        assert!(error.to_string().contains("1023"), "{error}");
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Work announced while the idle spinner goes to rest is found before it rests, or wakes it. A
    /// spinner that parks for ever is a deadlock of the model.
    #[test]
    fn loom_an_idle_spinner_does_not_sleep_through_what_is_expected_or_its_end() {
        for ends in [false, true] {
            loom::model(move || {
                let shared = loom::sync::Arc::new(SpinnerState::new());
                let idle_spinner = {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let is_expecting = || shared.expected.load(Ordering::Acquire) > 0;
                        while !is_expecting() && !shared.stop.load(Ordering::Acquire) {
                            shared.rest(is_expecting, thread::park);
                        }
                    })
                };
                let wakes = if ends {
                    shared.stop.store(true, Ordering::Release);
                    true
                } else {
                    shared.expect(1)
                };
                if wakes {
                    idle_spinner.thread().unpark();
                }
                idle_spinner.join().unwrap();
            });
        }
    }
}
