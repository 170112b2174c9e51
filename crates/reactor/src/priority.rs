//! Scheduling priorities of threads.
//!
//! A thread with `Latency` work runs at nice −20 if the process has the privilege. The callers
//! decide which threads get it.
#![allow(unsafe_code)] // `sched_setscheduler`, `setpriority` and `ioprio_get` for a single thread.

use base::{Nanos, Time};
use std::cell::Cell;
use std::{fmt, io};
use switch::Class;

base::named! {
    /// How a thread gets priority over others, best first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Privilege {
        /// Nice −20: a larger share of the processor than other threads.
        Nice = "nice",
        /// None: the process may not raise priorities.
        Unprivileged = "unprivileged",
    }
}

/// The result of raising a thread's priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityStatus {
    /// Raising the priority was not requested.
    #[default]
    Ordinary,
    /// The priority was raised.
    Raised(Privilege),
    /// The kernel refused, with this error number.
    Refused(i32),
}

impl PriorityStatus {
    /// Returns how the thread gets priority over others.
    #[must_use]
    pub const fn privilege(self) -> Privilege {
        match self {
            Self::Raised(privilege) => privilege,
            Self::Ordinary | Self::Refused(_) => Privilege::Unprivileged,
        }
    }

    /// Returns why a requested priority was not raised, with the remedy; `None` otherwise.
    #[must_use]
    pub fn refusal(self) -> Option<String> {
        let Self::Refused(number) = self else {
            return None;
        };
        let error = io::Error::from_raw_os_error(number);
        Some(format!(
            "{error}; grant CAP_SYS_NICE, or set `ulimit -e` to 40"
        ))
    }
}

impl fmt::Display for PriorityStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.privilege().name())?;
        match self.refusal() {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Sets the calling thread to nice −20 if the process may; returns the result.
pub fn raise_nice() -> PriorityStatus {
    // SAFETY: plain numbers; on Linux "process 0" is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0 {
        return PriorityStatus::Raised(Privilege::Nice);
    }
    PriorityStatus::Refused(
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EPERM),
    )
}

/// Lowers the priority of the calling thread to nice 10, below the threads that carry data.
pub fn lower_nice() {
    // Refused only without /proc, and then the thread has the priority of its creator.
    let own = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(own), 10);
}

/// Makes the calling thread run only while no other thread wants its processor. Requires no
/// privilege.
///
/// # Errors The kernel's error, for example under a seccomp profile.
pub fn yield_to_all() -> io::Result<()> {
    // SAFETY: a parameter of zeroes is valid; it has no pointers.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter lives during the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lifetime of a cached I/O priority: a change applies within this time, and the kernel is not
/// queried for every request.
const IO_CLASS_AGE: Nanos = Nanos::from_millis(10);

/// Returns the class for the calling thread's I/O priority: real-time is `Latency`, everything else
/// `Throughput`. `[blk-switch §3, ionice]`
///
/// Cached per thread; the kernel is queried again when `now`, which must not go backwards, is 10 ms
/// after the last query.
#[must_use]
pub fn io_class(now: Time) -> Class {
    thread_local! {
        static KNOWN: Cell<Option<(Time, Class)>> = const { Cell::new(None) };
    }
    KNOWN.with(|known| match known.get() {
        Some((asked, class)) if now.since(asked) < IO_CLASS_AGE => class,
        _ => {
            let class = io_class_of(0);
            known.set(Some((now, class)));
            class
        }
    })
}

/// `IOPRIO_WHO_PROCESS`: a thread by its identifier, 0 for the calling one.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Returns the class for a thread's I/O priority. The thread identifier is in the process's own PID
/// namespace; 0 is the calling thread. The default class for a thread that has ended.
#[must_use]
pub fn io_class_of(thread: u32) -> Class {
    // SAFETY: plain numbers; no memory is handed over.
    let value = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread) };
    // If the kernel refuses (a seccomp profile), the default class applies.
    u16::try_from(value).map_or(Class::DEFAULT, Class::from_io_priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_io_priority_is_asked_for_again_when_it_is_old() {
        let thread = std::thread::spawn(|| {
            let set = |class: i32| {
                // SAFETY: plain numbers; 0 is the calling thread.
                unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, class << 13) }
            };
            let (idle, best_effort, real_time) = (3, 2, 1);
            assert_eq!(set(idle), 0, "no privilege is needed");
            assert_eq!(io_class(Time(5)), Class::Throughput);
            // Only privileged processes may set real-time.
            if set(real_time) == 0 {
                let old = Time(5) + IO_CLASS_AGE;
                assert_eq!(io_class(old - Nanos(1)), Class::Throughput);
                assert_eq!(io_class(old), Class::Latency);
                assert_eq!(set(best_effort), 0, "no privilege is needed");
                assert_eq!(io_class(old + Nanos(1)), Class::Latency);
                assert_eq!(io_class(old + IO_CLASS_AGE), Class::Throughput);
            }
        });
        thread.join().expect("it ends");
    }

    #[test]
    fn a_thread_can_be_raised_as_far_as_allowed_and_always_be_lowered() {
        let thread = std::thread::spawn(|| {
            let status = raise_nice();
            let privilege = status.privilege();
            let refused = privilege == Privilege::Unprivileged;
            assert_eq!(refused, status.refusal().is_some(), "{status}");
            // SAFETY: asks for a number; 0 is the calling thread.
            let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            assert_eq!(privilege == Privilege::Nice, nice == -20);
            yield_to_all().expect("no privilege is needed");
            // SAFETY: asks for a number; 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
        });
        thread.join().expect("it ends");
    }
}
