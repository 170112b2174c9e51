//! The ring itself: setting it up, pushing entries, entering the kernel.
#![allow(unsafe_code)] // Entries carry addresses whose validity the operation table guarantees.

use base::{Nanos, Time};
use io_uring::{IoUring, cqueue, squeue, types};
use std::io;

/// `IORING_ENTER_GETEVENTS`: run completion work, even where nothing is waited for.
const ENTER_GETEVENTS: u32 = 1;

/// Why no ring could be set up, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The kernel, a container's filter or a sysctl forbids io_uring.
    #[error(
        "io_uring is not available to this process ({0}); check `sysctl kernel.io_uring_disabled` \
         (0 allows it), and a container's seccomp profile: it must allow io_uring_setup, \
         io_uring_enter and io_uring_register"
    )]
    Forbidden(io::Error),
    /// The kernel has no io_uring, or too old a one.
    #[error("this kernel's io_uring is too old ({0}): Linux 6.1 or newer is needed")]
    TooOld(&'static str),
    /// Locked memory is limited too tightly.
    #[error(
        "not enough locked memory for io_uring ({0}); raise it with `ulimit -l` or \
         LimitMEMLOCK= in the service's unit"
    )]
    Memlock(io::Error),
    /// Something else.
    #[error("cannot {what}: {source}")]
    Other {
        /// What was attempted.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// How the kernel runs the completion work of our ring, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRun {
    /// Only when we ask for it (Linux 6.1): no interruption between two turns.
    Deferred,
    /// At the next system call of ours (Linux 5.19).
    Cooperative,
}

/// What the kernel offers, found out at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// How completion work runs.
    pub task_run: TaskRun,
}

/// A ring of one core.
pub(super) struct Ring {
    ring: IoUring,
    pub(super) features: Features,
    /// Entries pushed since the last system call.
    unsubmitted: bool,
    pub(super) enters: u64,
    pub(super) submissions: u64,
}

impl Ring {
    pub(super) fn new(entries: u32, completions: u32) -> Result<Self, SetupError> {
        let deferred = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_clamp()
            .setup_cqsize(completions)
            .build(entries);
        let (ring, task_run) = match deferred {
            Ok(ring) => (ring, TaskRun::Deferred),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let ring = IoUring::builder()
                    .setup_coop_taskrun()
                    .setup_taskrun_flag()
                    .setup_clamp()
                    .setup_cqsize(completions)
                    .build(entries)
                    .map_err(setup_error)?;
                (ring, TaskRun::Cooperative)
            }
            Err(error) => return Err(setup_error(error)),
        };
        if !ring.params().is_feature_ext_arg() {
            return Err(SetupError::TooOld("no timed waits (IORING_FEAT_EXT_ARG)"));
        }
        if !ring.params().is_feature_nodrop() {
            return Err(SetupError::TooOld(
                "completions may be dropped (IORING_FEAT_NODROP)",
            ));
        }
        let features = Features { task_run };
        Ok(Self {
            ring,
            features,
            unsubmitted: false,
            enters: 0,
            submissions: 0,
        })
    }

    /// Puts an entry into the submission ring; a full ring is submitted first.
    ///
    /// What the entry points to must stay where it is until its completion was reaped: the
    /// driver's operation table owns it until then.
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entry's addresses are valid until its completion is reaped, because the
            // operation table owns the memory behind them (see `UringDriver::operations`).
            let pushed = unsafe { self.ring.submission().push(entry) };
            self.unsubmitted = true;
            if pushed.is_ok() {
                self.submissions += 1;
                return Ok(());
            }
            self.enters += 1;
            self.ring.submit()?;
        }
    }

    /// Pushes two entries that the kernel must see together, because the first links to the other.
    pub(super) fn push_linked(&mut self, entries: &[squeue::Entry; 2]) -> io::Result<()> {
        let queue = self.ring.submission();
        let space = queue.capacity() - queue.len();
        drop(queue);
        if space < entries.len() {
            self.enters += 1;
            self.ring.submit()?;
        }
        for entry in entries {
            self.push(entry)?;
        }
        Ok(())
    }

    /// Hands over new entries and runs completion work, without waiting. No system call when
    /// there is neither.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        if !self.unsubmitted && !self.ring.submission().taskrun() {
            return Ok(());
        }
        self.unsubmitted = false;
        self.enters += 1;
        let waiting = u32::try_from(self.ring.submission().len()).expect("the ring is bounded");
        let submitter = self.ring.submitter();
        // SAFETY: no argument is passed; the entries' own memory is covered by `push`.
        let entered = unsafe { submitter.enter::<()>(waiting, 0, ENTER_GETEVENTS, None) };
        ignore_wakeups(entered)
    }

    /// Hands over new entries and sleeps until something completes, or for `span`.
    pub(super) fn sleep(&mut self, span: Nanos) -> io::Result<()> {
        self.unsubmitted = false;
        self.enters += 1;
        if span.0 == Time::NEVER.0 {
            return ignore_wakeups(self.ring.submit_and_wait(1));
        }
        let timeout = timespec(span);
        let args = types::SubmitArgs::new().timespec(&timeout);
        ignore_wakeups(self.ring.submitter().submit_with_args(1, &args))
    }

    /// The next completion.
    pub(super) fn pop(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }
}

/// A span as the kernel wants it.
pub(super) fn timespec(span: Nanos) -> types::Timespec {
    let subsecond = u32::try_from(span.0 % 1_000_000_000).unwrap_or(0);
    types::Timespec::new()
        .sec(span.0 / 1_000_000_000)
        .nsec(subsecond)
}

/// A wait that ended by time-out, by a signal, or because completions are pending is no error.
fn ignore_wakeups(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

/// How often the scheduler has taken the processor away from the calling thread.
pub(super) fn preemptions() -> u64 {
    // SAFETY: the structure consists of numbers, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that it is given.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

fn setup_error(error: io::Error) -> SetupError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => SetupError::Forbidden(error),
        Some(libc::ENOSYS) => SetupError::Forbidden(error),
        Some(libc::EINVAL) => SetupError::TooOld("a set-up flag is unknown to it"),
        Some(libc::ENOMEM) => SetupError::Memlock(error),
        _ => SetupError::Other {
            what: "set up io_uring",
            source: error,
        },
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_what_to_do() {
        let text = |errno| setup_error(io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EPERM).contains("seccomp"));
        assert!(text(libc::ENOSYS).contains("seccomp"));
        assert!(text(libc::EINVAL).contains("Linux 6.1"));
        assert!(text(libc::ENOMEM).contains("ulimit -l"));
    }
}
