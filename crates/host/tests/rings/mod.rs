//! Lists the rings of this process, and breaks one.

// Every test file includes this module and uses part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};

/// Returns the descriptors of the process that are rings.
pub fn rings() -> BTreeSet<RawFd> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let rings = open.filter_map(|entry| {
        let entry = entry.ok()?;
        let link = std::fs::read_link(entry.path()).ok()?;
        let is_ring = link.to_str()?.contains("io_uring");
        is_ring.then(|| entry.file_name().to_str()?.parse().ok())?
    });
    rings.collect()
}

/// Replaces a ring by another descriptor: every call on it fails from now on.
pub fn break_ring(ring: RawFd) {
    let nothing = File::open("/dev/null").unwrap();
    // SAFETY: the descriptor is open; its owner closes it, so this handle must not.
    let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(ring) });
    rustix::io::dup2(nothing.as_fd(), &mut place).unwrap();
}
