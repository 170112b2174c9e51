//! The client's end of a connection, through another descriptor of its socket.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::os::fd::OwnedFd;

/// Maximum bytes discarded when a connection is closed: more than the kernel's buffer holds.
const CLOSING_BYTES_MAX: usize = 16 << 20;

/// The other end of a socket. Must be dropped before the socket is closed or reset, because the
/// kernel closes a connection with its last descriptor.
#[derive(Debug)]
pub(super) struct Peer(pub(super) OwnedFd);

impl Peer {
    /// Returns true if the client has closed the connection, even if its last bytes have not been
    /// read.
    pub(super) fn has_closed(&self) -> bool {
        let mut ready = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let at_once = Timespec::default();
        poll(&mut ready, Some(&at_once)).is_ok_and(|closed| closed > 0)
    }

    /// Discards unread bytes. Otherwise the kernel would reset the connection on closing, and the
    /// client could lose the last replies.
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
