//! The bytes of a peer during a handshake.

use std::io;

/// The peer's bytes. Calls do not block: they fail with `WouldBlock`.
pub trait Peer {
    /// Receives some bytes. Returns 0 once the peer has closed the connection.
    ///
    /// # Errors The kernel's.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Returns the next byte, which stays where it is; `None` once the peer has closed the
    /// connection.
    ///
    /// # Errors The kernel's.
    fn peek(&mut self) -> io::Result<Option<u8>>;

    /// Sends some bytes. Returns their number.
    ///
    /// # Errors The kernel's.
    fn send(&mut self, from: &[u8]) -> io::Result<usize>;
}
