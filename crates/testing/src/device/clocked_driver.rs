//! A driver with a clock that the test sets, so that timing is the same on any machine.

use base::Time;
use reactor::testing::{PassThrough, Replace};
use reactor::uring::UringDriver;
use reactor::{Completion, Op, OpKey, Wait};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// The kernel's driver with a test clock, which several drivers may share. It does no I/O.
pub type ClockedDriver = PassThrough<Clock>;

/// The time, set by the test.
#[derive(Debug)]
pub struct Clock(Rc<Cell<Time>>);

impl Clock {
    /// Returns a driver with the buffers of `inner` and this time.
    #[must_use]
    pub fn driver(inner: UringDriver, time: Rc<Cell<Time>>) -> ClockedDriver {
        PassThrough {
            inner,
            replaced: Self(time),
        }
    }

    /// Sets the clock.
    pub fn set(&self, now: Time) {
        self.0.set(now);
    }
}

impl Replace for Clock {
    fn now(&self, _: &UringDriver) -> Time {
        self.0.get()
    }

    fn submit(&mut self, _: &mut UringDriver, _: OpKey, _: Op) {
        unreachable!("memory needs no operation")
    }

    fn reap(&mut self, _: &mut UringDriver, _: Wait, _: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }
}
