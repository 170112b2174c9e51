//! The client's end of a connection, by another descriptor of its socket.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::os::fd::OwnedFd;

/// Bytes that are passed over when a connection is closed: more than the kernel's buffer holds.
const CLOSING_BYTES_MAX: usize = 16 << 20;

/// The other end of a socket. Dropped before the socket is closed or reset, since the kernel closes
/// a connection with its last descriptor.
#[derive(Debug)]
pub(super) struct Peer(pub(super) OwnedFd);

impl Peer {
    /// Returns true if the client has closed the connection, also if bytes that it sent before have
    /// not been read.
    pub(super) fn has_closed(&self) -> bool {
        let mut ready = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let at_once = Timespec::default();
        poll(&mut ready, Some(&at_once)).is_ok_and(|closed| closed > 0)
    }

    /// Passes over bytes that were not read. With some left the kernel would reset a connection that is
    /// closed, and the client could lose the last replies.
    pub(super) fn pass_over_unread(&self) {
        let mut bytes = [0; 4096];
        let mut left = CLOSING_BYTES_MAX;
        while left > 0
            && let Ok((count @ 1.., _)) = recv(&self.0, &mut bytes, RecvFlags::DONTWAIT)
        {
            left = left.saturating_sub(count);
        }
    }
}
