//! Waking a core that sleeps in the kernel, through an event counter that its ring watches.

use crate::driver::Wake;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;

/// An event counter.
#[derive(Debug)]
pub(super) struct EventWaker {
    pub(super) fd: OwnedFd,
}

impl EventWaker {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Resets the counter, before it is watched anew: that would find an old wake otherwise.
    pub(super) fn reset(&self) {
        let mut count = [0u8; 8];
        // Nothing to read means that another reader reset it before us.
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

impl Wake for EventWaker {
    #[expect(
        clippy::host_endian_bytes,
        reason = "the counter is a number of this machine"
    )]
    fn wake(&self) {
        // The counter can only be full after 2^64−2 wakes: a million each second for half a
        // million years.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}
