//! The descriptor of a queue for a program's event loop.
//!
//! An epoll instance that is readable for four reasons: a completion of the ring (it raises an
//! event counter), the queue's next deadline (a timer), completions that the program did not take
//! (the counter, raised by the queue), and a wake-up by the host's threads (the driver's own
//! counter).

use base::{Nanos, Time};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A pollable descriptor of a queue.
#[derive(Debug)]
pub(super) struct Readiness {
    both: OwnedFd,
    counter: OwnedFd,
    timer: OwnedFd,
    /// Time for which the timer is set.
    set_to: Cell<Time>,
}

impl Readiness {
    /// Creates the descriptor; it is also readable for `wakes`, the counter of the driver's waker.
    pub(super) fn new(wakes: BorrowedFd<'_>) -> io::Result<Self> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [counter.as_fd(), timer.as_fd(), wakes] {
            epoll::add(&both, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self {
            both,
            counter,
            timer,
            set_to: Cell::new(Time::NEVER),
        })
    }

    /// The descriptor to poll.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    /// The event counter that the ring raises.
    pub(super) fn counter(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }

    /// Makes the descriptor unreadable, before the queue is checked.
    pub(super) fn clear(&self) {
        let mut count = [0_u8; 8];
        // An empty read means that it was not raised.
        let _ = rustix::io::read(&self.counter, &mut count);
        if rustix::io::read(&self.timer, &mut count).is_ok() {
            self.set_to.set(Time::NEVER);
        }
    }

    /// Makes the descriptor readable.
    #[expect(
        clippy::host_endian_bytes,
        reason = "the counter is a number of this machine"
    )]
    pub(super) fn raise(&self) {
        // Fails only if the counter is full, and thus readable.
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor readable at `deadline`.
    pub(super) fn wake_at(&self, now: Time, deadline: Time) -> io::Result<()> {
        if deadline == self.set_to.get() {
            return Ok(());
        }
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let span = if deadline == Time::NEVER {
            // A time of zero disarms the timer.
            zero
        } else {
            // Zero would disarm the timer, so a deadline in the past fires after one nanosecond.
            let span = if deadline > now {
                deadline.since(now)
            } else {
                Nanos(1)
            };
            Timespec {
                tv_sec: i64::try_from(span.0 / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(span.0 % 1_000_000_000).unwrap_or(0),
            }
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: span,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        self.set_to.set(deadline);
        Ok(())
    }
}
