//! The ring itself: setup, pushing entries, entering the kernel.
#![allow(unsafe_code)] // Entries carry addresses whose validity the operation table guarantees.

use base::{Nanos, Time};
use io_uring::{IoUring, cqueue, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

/// `IORING_ENTER_GETEVENTS`: runs completion work, even without waiting.
const ENTER_GETEVENTS: u32 = 1;

/// Why a ring could not be created, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The kernel, a container's filter or a sysctl forbids io_uring.
    #[error(
        "io_uring is not available to this process ({0}); check `sysctl kernel.io_uring_disabled` \
         (0 allows it), and a container's seccomp profile: it must allow io_uring_setup, \
         io_uring_enter and io_uring_register"
    )]
    Forbidden(io::Error),
    /// The kernel's io_uring is missing or too old.
    #[error("the io_uring of this kernel is too old ({0}); Linux 6.1 or later is needed")]
    TooOld(&'static str),
    /// The limit of locked memory is too low.
    #[error(
        "not enough locked memory for io_uring ({0}); raise the limit with `ulimit -l` or \
         LimitMEMLOCK= in the service's unit"
    )]
    Memlock(io::Error),
    /// The process is out of descriptors.
    #[error(
        "no free file descriptor ({0}); raise the limit with `ulimit -n` or LimitNOFILE= in the \
         service's unit"
    )]
    Descriptors(io::Error),
    /// Another error.
    #[error("cannot {what}: {source}")]
    Other {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// When the kernel runs the ring's completion work, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRun {
    /// Only on request (Linux 6.1): no interruption between two turns.
    Deferred,
    /// At the next system call of the thread (Linux 5.19).
    Cooperative,
}

/// Features of the kernel, detected at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// When completion work runs.
    pub task_run: TaskRun,
}

/// Submission entries of the smallest acceptable ring: with its completions it takes two pages of
/// locked memory, so that eight cores fit in the 64 KiB that a container may have.
const ENTRIES_MIN: u32 = 16;

/// Pause of a core that would sleep while the kernel has no memory for its entries.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);

/// The ring of one core.
pub(super) struct Ring {
    ring: IoUring,
    pub(super) features: Features,
    /// The kernel has not accepted every entry yet.
    unsubmitted: bool,
    /// Entries (linked ones together) that found the submission ring full while the kernel was too
    /// short of memory to empty it. They are submitted first once it does.
    held_back: VecDeque<Box<[squeue::Entry]>>,
    /// The error that broke the ring; the next system call reports it.
    failure: Option<io::Error>,
    /// Number of system calls that fail as if the kernel were out of memory, in tests.
    #[cfg(test)]
    pub(super) refusals: u32,
    pub(super) enters: u64,
    pub(super) submissions: u64,
}

impl Ring {
    /// Creates a ring on the thread that will use it. If locked memory is short, the ring is
    /// smaller than requested: submitting then takes more system calls, and the kernel queues
    /// completions that do not fit.
    pub(super) fn new(mut entries: u32, mut completions: u32) -> Result<Self, SetupError> {
        let (ring, task_run) = loop {
            match build(entries, completions) {
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOMEM) && entries > ENTRIES_MIN =>
                {
                    entries /= 4;
                    completions /= 4;
                }
                built => break built.map_err(setup_error)?,
            }
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
            held_back: VecDeque::new(),
            failure: None,
            #[cfg(test)]
            refusals: 0,
            enters: 0,
            submissions: 0,
        })
    }

    /// Returns another descriptor of the ring.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring owns the descriptor for longer than this borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }.try_clone_to_owned()
    }

    /// Puts an entry into the submission ring; a full ring is submitted first.
    ///
    /// The memory to which the entry points must stay in place until its completion is reaped: the
    /// driver's operation table owns it until then.
    pub(super) fn push(&mut self, entry: squeue::Entry) {
        self.push_together(&[entry]);
    }

    /// Pushes entries that the kernel must see together because they are linked.
    pub(super) fn push_together(&mut self, entries: &[squeue::Entry]) {
        self.unsubmitted = true;
        self.submissions += entries.len() as u64;
        if !self.held_back.is_empty() || !self.put(entries) {
            self.held_back.push_back(entries.into());
        }
    }

    /// Puts entries into the submission ring, all or none. Returns true if they are in.
    fn put(&mut self, entries: &[squeue::Entry]) -> bool {
        loop {
            // SAFETY: the entries' addresses are valid until their completions are reaped, because
            // the operation table owns the memory behind them (see `UringDriver::operations`).
            if unsafe { self.ring.submission().push_multiple(entries) }.is_ok() {
                return true;
            }
            self.enters += 1;
            if self.is_refused() {
                return false;
            }
            match self.ring.submit() {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if is_transient(&error) => return false,
                Err(error) => {
                    self.failure.get_or_insert(error);
                    return false;
                }
            }
        }
    }

    /// Prepares the submission ring for a system call.
    fn prepare(&mut self) -> io::Result<()> {
        while let Some(entries) = self.held_back.pop_front() {
            if !self.put(&entries) {
                self.held_back.push_front(entries);
                break;
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Records the state after a system call. A wait that timed out or was interrupted, and a
    /// kernel that accepts the rest later, are not errors.
    fn entered(&mut self, result: io::Result<usize>) -> io::Result<()> {
        self.unsubmitted = !self.held_back.is_empty() || !self.ring.submission().is_empty();
        match result {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Submits new entries and runs completion work without waiting. No system call if there is
    /// neither.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        let (work, overflow) = (queue.taskrun(), queue.cq_overflow());
        drop(queue);
        if !self.unsubmitted && !work && !overflow {
            return Ok(());
        }
        self.prepare()?;
        self.enters += 1;
        if self.is_refused() {
            return self.entered(Err(io::Error::from_raw_os_error(libc::EAGAIN)));
        }
        let waiting = u32::try_from(self.ring.submission().len()).expect("the ring is bounded");
        let submitter = self.ring.submitter();
        // SAFETY: no argument is passed; the entries' own memory is covered by `put`.
        let entered = unsafe { submitter.enter::<()>(waiting, 0, ENTER_GETEVENTS, None) };
        self.entered(entered)
    }

    /// Returns true if a test makes this system call fail.
    fn is_refused(&mut self) -> bool {
        #[cfg(test)]
        if self.refusals > 0 {
            self.refusals -= 1;
            return true;
        }
        false
    }

    /// Returns true if the kernel, short of memory, has not accepted every entry yet, so those are
    /// not in effect. Then waits briefly.
    pub(super) fn is_short(&self) -> bool {
        if self.unsubmitted {
            std::thread::sleep(SHORTAGE_PAUSE);
        }
        self.unsubmitted
    }

    /// Submits new entries and sleeps until something completes, or for `span`; only briefly if the
    /// kernel has no memory for all entries.
    pub(super) fn sleep(&mut self, mut span: Nanos) -> io::Result<()> {
        self.prepare()?;
        if !self.held_back.is_empty() {
            span = span.min(Nanos::from(SHORTAGE_PAUSE));
        }
        self.enters += 1;
        let entered = if span.0 == Time::NEVER.0 {
            self.ring.submit_and_wait(1)
        } else {
            let timeout = timespec(span);
            let args = types::SubmitArgs::new().timespec(&timeout);
            self.ring.submitter().submit_with_args(1, &args)
        };
        if matches!(&entered, Err(error) if error.raw_os_error() == Some(libc::EAGAIN)) {
            // The kernel did not wait, and would not wait the next time either.
            std::thread::sleep(SHORTAGE_PAUSE.min(Duration::from(span)));
        }
        self.entered(entered)
    }

    /// Makes the kernel raise an event counter with each completion, or with completion work, which
    /// this thread runs at its next system call.
    pub(super) fn register_event(&self, counter: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_eventfd(counter.as_raw_fd())
    }

    /// Returns the next completion.
    pub(super) fn pop(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }
}

/// Creates the best ring that the kernel supports.
fn build(entries: u32, completions: u32) -> io::Result<(IoUring, TaskRun)> {
    let mut builder = IoUring::builder();
    builder
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(completions);
    let mut deferred = builder.clone();
    deferred.setup_single_issuer().setup_defer_taskrun();
    match deferred.build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let ring = builder.setup_coop_taskrun().build(entries)?;
            Ok((ring, TaskRun::Cooperative))
        }
        ring => Ok((ring?, TaskRun::Deferred)),
    }
}

/// Converts a duration to the kernel's format.
pub(super) fn timespec(span: Nanos) -> types::Timespec {
    let subsecond = u32::try_from(span.0 % 1_000_000_000).unwrap_or(0);
    types::Timespec::new()
        .sec(span.0 / 1_000_000_000)
        .nsec(subsecond)
}

/// Returns true if the same call may succeed later: a wait timed out (`ETIME`), a signal arrived
/// (`EINTR`), completions must be reaped first (`EBUSY`), or memory is short (`EAGAIN`).
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
    )
}

fn setup_error(error: io::Error) -> SetupError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => SetupError::Forbidden(error),
        Some(libc::ENOSYS) => SetupError::Forbidden(error),
        Some(libc::EINVAL) => SetupError::TooOld("a set-up flag is unknown"),
        Some(libc::ENOMEM) => SetupError::Memlock(error),
        Some(libc::EMFILE | libc::ENFILE) => SetupError::Descriptors(error),
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
    use crate::uring::tests::in_own_process;

    #[test]
    fn refusals_name_what_to_do() {
        let text = |errno| setup_error(io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EPERM).contains("seccomp"));
        assert!(text(libc::ENOSYS).contains("seccomp"));
        assert!(text(libc::EINVAL).contains("Linux 6.1"));
        assert!(text(libc::ENOMEM).contains("ulimit -l"));
        assert!(text(libc::EMFILE).contains("ulimit -n"));
    }

    fn nop(user_data: u64) -> squeue::Entry {
        io_uring::opcode::Nop::new().build().user_data(user_data)
    }

    /// A polling core must see the completions on the kernel's overflow list.
    #[test]
    fn completions_beyond_the_ring_arrive_in_turns_that_do_not_sleep() {
        let mut ring = Ring::new(8, 16).expect("a ring");
        for i in 0..100 {
            ring.push(nop(i));
        }
        let mut seen = Vec::new();
        for _ in 0..100 {
            ring.turn().expect("the ring works");
            seen.extend(std::iter::from_fn(|| ring.pop()).map(|entry| entry.user_data()));
        }
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    /// Entries that the kernel does not accept at first are submitted by later turns.
    #[test]
    fn held_back_entries_keep_their_order_and_are_not_lost() {
        let mut ring = Ring::new(8, 64).expect("a ring");
        ring.held_back.push_back([nop(0), nop(1)].into());
        for i in 2..20 {
            ring.push(nop(i));
        }
        ring.turn().expect("the ring works");
        let seen: Vec<_> = std::iter::from_fn(|| ring.pop())
            .map(|e| e.user_data())
            .collect();
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
        assert!(!ring.unsubmitted);
    }

    /// A sleeping call that submits the ring must not make held-back entries wait for the end of
    /// the sleep.
    #[test]
    fn a_core_does_not_sleep_while_entries_are_held_back() {
        use rustix::event::{EventfdFlags, eventfd};
        let mut ring = Ring::new(8, 64).expect("a ring");
        let silent = eventfd(0, EventfdFlags::CLOEXEC).expect("an event counter");
        for _ in 0..8 {
            let poll = io_uring::opcode::PollAdd::new(types::Fd(silent.as_raw_fd()), 1);
            ring.push(poll.build());
        }
        ring.refusals = 1;
        ring.push(nop(1));
        ring.refusals = 1;
        // Otherwise only this ends the sleep.
        let (wakes, over) = std::sync::mpsc::channel::<()>();
        let waker = silent.try_clone().expect("a descriptor");
        let waker = std::thread::spawn(move || {
            let span = Duration::from_secs(10);
            if over.recv_timeout(span) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                rustix::io::write(&waker, &[1; 8]).expect("an event");
            }
        });
        ring.sleep(Nanos(Time::NEVER.0)).expect("the ring works");
        ring.sleep(Nanos(Time::NEVER.0)).expect("the ring works");
        let seen: Vec<_> = std::iter::from_fn(|| ring.pop())
            .map(|entry| entry.user_data())
            .collect();
        drop(wakes);
        waker.join().expect("it ends");
        assert_eq!(seen, [1]);
        assert!(!ring.is_short());
    }

    /// An application that waits elsewhere must not be told that all sockets are watched too early.
    #[test]
    fn a_turn_that_the_kernel_refuses_leaves_the_ring_short() {
        let mut ring = Ring::new(8, 64).expect("a ring");
        ring.push(nop(1));
        ring.refusals = 1;
        ring.turn().expect("a shortage is no error");
        assert!(ring.is_short() && ring.pop().is_none());
        ring.turn().expect("the ring works");
        assert!(!ring.is_short());
        assert_eq!(ring.pop().map(|entry| entry.user_data()), Some(1));
    }

    /// A ring must be possible with the locked memory that containers often have.
    #[test]
    fn little_locked_memory_makes_a_small_ring() {
        use rustix::process::{Resource, Rlimit, Uid, setrlimit};
        if !in_own_process("uring::ring::tests::little_locked_memory_makes_a_small_ring") {
            return;
        }
        let bytes = Some(64 * 1024);
        let limit = Rlimit {
            current: bytes,
            maximum: bytes,
        };
        setrlimit(Resource::Memlock, limit).expect("a lower limit is always allowed");
        if rustix::process::geteuid().is_root() {
            // The limit does not apply to the superuser; this thread gives up that privilege.
            let nobody = Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("allowed");
        }
        let mut ring = Ring::new(1024, 8192).expect("a smaller ring");
        for i in 0..5_000 {
            ring.push(nop(i));
        }
        let mut seen = Vec::new();
        while seen.len() < 5_000 {
            ring.turn().expect("the ring works");
            seen.extend(std::iter::from_fn(|| ring.pop()).map(|entry| entry.user_data()));
        }
        assert!(seen.is_sorted());
    }

    /// A wait that fails at once must neither make a sleeping core spin nor lose the entry.
    #[test]
    fn a_wait_that_times_out_is_no_error() {
        let mut ring = Ring::new(8, 16).expect("a ring");
        ring.sleep(Nanos(1)).expect("timed out");
        ring.sleep(Nanos::ZERO).expect("timed out");
        assert!(ring.pop().is_none());
    }
}
