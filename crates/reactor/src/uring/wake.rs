//! Waking a core that sleeps in the kernel, through an event counter watched by its ring.

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

    /// Resets the counter before it is watched again, which would otherwise report an old wake.
    pub(super) fn reset(&self) {
        let mut count = [0u8; 8];
        // If there is nothing to read, another reader has already reset it.
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

impl Wake for EventWaker {
    #[expect(
        clippy::host_endian_bytes,
        reason = "the counter is a number of this machine"
    )]
    fn wake(&self) {
        // The counter is full only after 2^64−2 wakes: half a million years at a million per
        // second.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}
