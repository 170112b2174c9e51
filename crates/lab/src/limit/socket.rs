//! Socket and core operations of both ends.

use std::net::TcpStream;
use std::time::Duration;

use base::units::CoreId;
use reactor::placement;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};

use super::case::Poll;
use super::error::RawError;
use super::limits;

/// Longest time that an end waits for its peer.
pub(super) const PATIENCE: Timespec = Timespec {
    tv_sec: limits::STALL.as_secs().cast_signed(),
    tv_nsec: 0,
};

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Number of bytes; never zero.
    Bytes(usize),
    /// No data yet, or room to send again.
    Nothing,
    /// The peer has closed its sending side.
    End,
}

/// Pins the calling thread to `core`; `None` leaves it unpinned.
pub(super) fn pin(core: Option<usize>) -> Result<(), RawError> {
    let Some(core) = core else { return Ok(()) };
    // A number too large for a core is refused like that of any missing core.
    let core = CoreId(u32::try_from(core).unwrap_or(u32::MAX));
    Ok(placement::pin_to(core)?)
}

/// Configures a connection for both throughput and latency.
pub(super) fn tune(stream: &TcpStream) -> Result<(), RawError> {
    sockopt::set_tcp_nodelay(stream, true).map_err(RawError::call("setsockopt"))?;
    // Optional settings, in order of preference; a refusal leaves the default. Reno, because a
    // congestion control with pacing costs throughput where no packets are lost.
    let _ = sockopt::set_tcp_congestion(stream, "reno");
    let bytes = limits::SOCKET_BUFFER_BYTES;
    if sockopt::set_socket_send_buffer_size_force(stream, bytes).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(stream, bytes);
    }
    if sockopt::set_socket_recv_buffer_size_force(stream, bytes).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(stream, bytes);
    }
    Ok(())
}

/// Receives available data. `Poll::Never` waits for it, at most [`limits::STALL`]; with `unsent`,
/// it also waits for room to send.
#[inline]
pub(super) fn receive(
    stream: &TcpStream,
    buffer: &mut [u8],
    poll: Poll,
    unsent: bool,
) -> Result<Received, RawError> {
    let flags = match poll {
        Poll::Never if !unsent => RecvFlags::empty(),
        Poll::Never | Poll::Always => RecvFlags::DONTWAIT,
    };
    match rustix::net::recv(stream, buffer, flags) {
        Ok((_, 0)) => Ok(Received::End),
        Ok((_, bytes)) => Ok(Received::Bytes(bytes)),
        Err(Errno::INTR) => Ok(Received::Nothing),
        Err(Errno::AGAIN) => {
            if poll == Poll::Never && unsent {
                wait_for_either(stream)?;
            }
            Ok(Received::Nothing)
        }
        Err(error) => Err(RawError::call("recv")(error)),
    }
}

/// Sets the time-out of a blocking receive.
pub(super) fn set_receive_timeout(stream: &TcpStream, limit: Duration) -> Result<(), RawError> {
    stream
        .set_read_timeout(Some(limit))
        .map_err(RawError::call("setsockopt"))
}

/// Sleeps until data arrives or there is room to send.
fn wait_for_either(stream: &TcpStream) -> Result<(), RawError> {
    let mut polled = [PollFd::new(stream, PollFlags::IN | PollFlags::OUT)];
    match rustix::event::poll(&mut polled, Some(&PATIENCE)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(RawError::call("poll")(error)),
    }
}
