//! What a thread may take from others, and what it leaves to them.
//!
//! A thread that carries `Latency` work must run as soon as that arrives, whatever else wants its
//! processor. How far that can be had depends on the privileges of the process: real time, a
//! better nice value, or nothing. Nothing here decides who deserves it.
#![allow(unsafe_code)] // `sched_setscheduler` and `setpriority` for a single thread.

use std::io;

/// By what a thread goes before others; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// `SCHED_FIFO`: before every ordinary thread. The kernel keeps 5 % for those.
    RealTime,
    /// Nice −20: before ordinary threads, but not at once.
    Nice,
    /// By nothing: the process may not raise priorities.
    Unprivileged,
}

impl Privilege {
    /// What reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RealTime => "real-time",
            Self::Nice => "nice",
            Self::Unprivileged => "unprivileged",
        }
    }
}

/// The lowest real-time priority is before every ordinary thread, and behind whatever the machine
/// itself runs in real time.
const REAL_TIME_PRIORITY: libc::c_int = 1;

/// Lets the calling thread go before ordinary ones, as far as the process may; says how far.
pub fn raise() -> Privilege {
    if schedule(libc::SCHED_FIFO, REAL_TIME_PRIORITY).is_ok() {
        return Privilege::RealTime;
    }
    raise_nice()
}

/// Lets the calling thread have as much of its processor as a better nice value gives, and no real
/// time; says whether the process may.
pub fn raise_nice() -> Privilege {
    // SAFETY: plain numbers; on Linux "process 0" is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0 {
        return Privilege::Nice;
    }
    Privilege::Unprivileged
}

/// Lets the calling thread run only while nobody else wants its processor. Needs no privilege.
///
/// # Errors
/// The kernel's, such as under a seccomp profile.
pub fn yield_to_all() -> io::Result<()> {
    schedule(libc::SCHED_IDLE, 0)
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: a parameter of zeroes is valid; it has no pointers.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: the parameter lives during the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_raised_as_far_as_allowed_and_always_be_lowered() {
        let thread = std::thread::spawn(|| {
            let privilege = raise();
            assert!(!privilege.name().is_empty());
            // SAFETY: asks for a number.
            let policy = unsafe { libc::sched_getscheduler(0) };
            assert_eq!(privilege == Privilege::RealTime, policy == libc::SCHED_FIFO);
            yield_to_all().expect("everybody may");
            // SAFETY: as above.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
        });
        thread.join().expect("it ends");
    }
}
