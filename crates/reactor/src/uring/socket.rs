//! One TCP connection: direct, non-blocking sends and receives of scatter lists.
#![allow(unsafe_code)] // `sendmsg` and `recvmsg` take addresses; the lists own what they name.

use crate::arrivals::Interest;
use crate::limits::SEND_SEGMENTS_MAX;
use crate::memory::{Buffer, IoSlice};
use crate::op::{OpKey, SocketOptions};
use crate::send_list::{ListPosition, Segment, SendList};
use crate::tls::{Sealed, Session};
use base::{Nanos, Time};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};
use secure::record::{Alert, MESSAGE_MAX};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Bytes after the wanted payload that a receive also takes: the next PDU's header and a little
/// more, but not so much of a following payload that copying it later is expensive.
pub(super) const RECEIVE_TAIL_BYTES: usize = 4096;

/// An outstanding send.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) key: OpKey,
    pub(super) list: Box<SendList>,
    /// Bytes of the list that the kernel has accepted; with TLS, that were encrypted.
    pub(super) sent: usize,
    /// With TLS, encrypted bytes for the kernel.
    pub(super) sealed: Option<Sealed>,
    /// With TLS, the next byte of the list.
    pub(super) position: ListPosition,
}

impl Sending {
    pub(super) fn new(key: OpKey, list: Box<SendList>) -> Self {
        Self {
            key,
            list,
            sent: 0,
            sealed: None,
            position: ListPosition::default(),
        }
    }
}

/// A receive that waits for data.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) key: OpKey,
    pub(super) into: Option<IoSlice>,
}

impl Receiving {
    /// Returns the maximum bytes of a receive with a buffer of `rest` bytes.
    pub(super) fn room(&self, rest: usize) -> usize {
        self.into
            .as_ref()
            .map_or(rest, |slice| slice.len() + rest.min(RECEIVE_TAIL_BYTES))
    }
}

/// A connected socket and its outstanding operations.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    /// TLS.
    pub(super) session: Option<Box<Session>>,
    pub(super) sending: Option<Sending>,
    pub(super) receiving: Option<Receiving>,
    /// The ring's operation that watches for data to receive.
    pub(super) poll_in: Option<u64>,
    /// The ring's operation that watches for room to send.
    pub(super) poll_out: Option<u64>,
    pub(super) interest: Interest,
    pub(super) closing: Option<OpKey>,
    /// The turn of this closing socket has come.
    pub(super) let_go: bool,
    /// The connection is released once it has closed.
    pub(super) released: bool,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, session: Option<Box<Session>>, now: Time) -> Self {
        Self {
            fd,
            session,
            sending: None,
            receiving: None,
            poll_in: None,
            poll_out: None,
            interest: Interest::new(now),
            closing: None,
            let_go: false,
            released: false,
        }
    }
}

impl Socket {
    /// Ends TLS with an alert, if nothing is being sent. Its record is best effort: the peer also
    /// notices the end of the connection.
    pub(super) fn end_session(&mut self, alert: Alert) {
        if self.sending.is_some() {
            return;
        }
        if let Some(session) = &mut self.session {
            let mut record = [0; MESSAGE_MAX];
            let len = session.alert(alert, &mut record);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&self.fd, &record[..len], flags);
        }
    }
}

/// The result of a non-blocking system call.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Number of bytes transferred.
    Moved(usize),
    /// The call would block.
    WouldBlock,
    /// The connection is broken.
    Failed(io::Error),
}

/// Sends the rest of the list from byte `sent`, at most `most` bytes, as much as the kernel
/// accepts.
pub(super) fn send(
    fd: &OwnedFd,
    list: &SendList,
    sent: usize,
    most: usize,
    iovecs: &mut Vec<libc::iovec>,
) -> Attempt {
    iovecs.clear();
    let mut left = most;
    let mut push = |address: *const u8, len: usize| {
        let iov_base = address.cast_mut().cast::<libc::c_void>();
        let iov_len = len.min(left);
        left -= iov_len;
        iovecs.push(libc::iovec { iov_base, iov_len });
        iovecs.len() < SEND_SEGMENTS_MAX && left > 0
    };
    let mut end = 0;
    for segment in list.segments() {
        let (address, len) = match segment {
            Segment::Header { start, len } => (list.headers()[*start..].as_ptr(), *len),
            Segment::Payload(slice) => (slice.address().cast_const(), slice.len()),
        };
        let start = end;
        end += len;
        if end <= sent {
            continue;
        }
        let mut from = sent.max(start);
        let aside = list.aside(from);
        if !aside.is_empty() {
            from += aside.len();
            if !push(aside.as_ptr(), aside.len()) {
                break;
            }
        }
        // If the kernel accepts no more ranges at once, the caller continues with the rest.
        if from < end && !push(address.wrapping_add(from - start), end - from) {
            break;
        }
    }
    // SAFETY: the vectors name ranges that `list` owns and keeps for the duration of the call,
    // which only reads them; slices for system calls are laid out as the kernel's vectors.
    let slices = unsafe { std::slice::from_raw_parts(iovecs.as_ptr().cast(), iovecs.len()) };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    attempt(rustix::net::sendmsg(fd, slices, &mut control, flags))
}

/// Sends encrypted bytes, as many as the kernel accepts.
pub(super) fn send_bytes(fd: &OwnedFd, bytes: &[u8]) -> Attempt {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    attempt(rustix::net::send(fd, bytes, flags))
}

/// Receives encrypted bytes. End of stream is `Moved(0)`.
pub(super) fn receive_bytes(fd: &OwnedFd, into: &mut [u8]) -> Attempt {
    let received = rustix::net::recv(fd, into, RecvFlags::DONTWAIT);
    attempt(received.map(|(_, bytes)| bytes))
}

/// Receives into the front of `into`, then into `rest`, at most `most` bytes (and never less than a
/// header). End of stream is `Moved(0)`.
pub(super) fn receive(
    fd: &OwnedFd,
    into: Option<&mut IoSlice>,
    rest: &mut Buffer,
    most: usize,
) -> Attempt {
    let Some(slice) = into else {
        let most = rest.len().min(most);
        let received = rustix::net::recv(fd, &mut rest[..most], RecvFlags::DONTWAIT);
        return attempt(received.map(|(_, bytes)| bytes));
    };
    let mut iovecs = [
        libc::iovec {
            iov_base: slice.address().cast(),
            iov_len: slice.len().min(most),
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len().min(RECEIVE_TAIL_BYTES),
        },
    ];
    // A partly used slice is followed by nothing.
    let vectors = if slice.len() > most { 1 } else { 2 };
    // SAFETY: the first vector names memory that the slice owns (a buffer's, exclusively, because
    // shared ones were refused when the receive was submitted; or a region's, which documents
    // concurrent access), the second a buffer that is borrowed exclusively for the call; only the
    // kernel writes to them. Slices for system calls are laid out as the kernel's vectors.
    let slices = unsafe { std::slice::from_raw_parts_mut(iovecs.as_mut_ptr().cast(), vectors) };
    let mut control = RecvAncillaryBuffer::default();
    let received = rustix::net::recvmsg(fd, slices, &mut control, RecvFlags::DONTWAIT);
    attempt(received.map(|message| message.bytes))
}

fn attempt(result: rustix::io::Result<usize>) -> Attempt {
    match result {
        Ok(bytes) => Attempt::Moved(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Attempt::WouldBlock,
        Err(error) => Attempt::Failed(error.into()),
    }
}

/// Configures a TCP socket for the data path. Only `TCP_NODELAY` is essential; other refused
/// options cost speed, not correctness.
pub(super) fn configure(fd: &OwnedFd, options: &SocketOptions) -> io::Result<()> {
    sockopt::set_tcp_nodelay(fd, true)?;
    if options.buffer_bytes > 0 {
        let _ = sockopt::set_socket_send_buffer_size(fd, options.buffer_bytes);
        let _ = sockopt::set_socket_recv_buffer_size(fd, options.buffer_bytes);
    }
    if options.user_timeout > Nanos(0) {
        let timeout_ms = options.user_timeout.0 / 1_000_000;
        let timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX).max(1);
        let _ = sockopt::set_tcp_user_timeout(fd, timeout_ms);
    }
    let idle = Duration::from(options.keep_alive);
    if idle >= SECOND {
        let _ = sockopt::set_tcp_keepidle(fd, idle);
        let _ = sockopt::set_tcp_keepintvl(fd, (idle / KEEP_ALIVE_PROBES).max(SECOND));
        let _ = sockopt::set_tcp_keepcnt(fd, KEEP_ALIVE_PROBES);
        let _ = sockopt::set_socket_keepalive(fd, true);
    }
    Ok(())
}

/// Kernel send and receive buffer of a connection within this machine, in bytes: a whole caravan
/// fits.
const LOCAL_BUFFER_BYTES: usize = 4 << 20;

/// Sets buffers and congestion control of a TCP connection to a peer on this machine: its round
/// trip is too short to need the kernel's autotuning, no packet is lost, and a default with pacing
/// (BBR) costs throughput. All other connections keep the kernel's settings for their network.
pub fn tune_to_peer(fd: impl AsFd, peer: SocketAddr, options: &SocketOptions) {
    let own = || SocketAddr::try_from(rustix::net::getsockname(&fd)?);
    if peer.ip().to_canonical().is_loopback() || own().is_ok_and(|own| own.ip() == peer.ip()) {
        // Without them the connection is slower, not incorrect.
        if options.buffer_bytes == 0 {
            let _ = sockopt::set_socket_send_buffer_size(&fd, LOCAL_BUFFER_BYTES);
            let _ = sockopt::set_socket_recv_buffer_size(&fd, LOCAL_BUFFER_BYTES);
        }
        let _ = sockopt::set_tcp_congestion(&fd, "reno");
    }
}

/// Minimum interval between keep-alive probes.
const SECOND: Duration = Duration::from_secs(1);

/// Number of unanswered probes after which a peer is considered lost.
const KEEP_ALIVE_PROBES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// The connection of a peer that was switched off must end, and free its resources, even if
    /// nothing is sent to it.
    #[test]
    fn a_dead_peer_is_noticed_in_bounded_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let options = SocketOptions {
            buffer_bytes: 64 << 10,
            user_timeout: Nanos::from_millis(12_345),
            keep_alive: Nanos::from_secs(21),
            tls: None,
        };
        let listener = OwnedFd::from(listener);
        configure(&listener, &options).expect("a TCP socket");
        let buffer_bytes = sockopt::socket_recv_buffer_size(&listener);
        // A listener's connections inherit all options.
        let _peer = TcpStream::connect(address).expect("it listens");
        let fd = rustix::net::accept(&listener).expect("a connection");
        assert_eq!(sockopt::tcp_nodelay(&fd), Ok(true));
        assert_eq!(sockopt::socket_recv_buffer_size(&fd), buffer_bytes);
        assert_eq!(sockopt::tcp_user_timeout(&fd), Ok(12_345));
        assert_eq!(sockopt::socket_keepalive(&fd), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&fd), Ok(Duration::from_secs(21)));
        assert_eq!(sockopt::tcp_keepintvl(&fd), Ok(Duration::from_secs(7)));
        assert_eq!(sockopt::tcp_keepcnt(&fd), Ok(KEEP_ALIVE_PROBES));
    }

    #[test]
    fn the_kernel_fits_buffers_and_congestion_control_to_a_network() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let of = |fd: &OwnedFd| {
            let buffer = sockopt::socket_recv_buffer_size(fd).expect("it has one");
            (buffer, sockopt::tcp_congestion(fd).expect("it has one"))
        };
        let fd = OwnedFd::from(TcpStream::connect(address).expect("it listens"));
        let before = of(&fd);
        let options = SocketOptions::default();
        configure(&fd, &options).expect("a TCP socket");
        tune_to_peer(&fd, "192.0.2.1:4420".parse().expect("an address"), &options);
        assert_eq!(of(&fd), before, "another machine");
        tune_to_peer(&fd, address, &options);
        let (buffer, congestion_control) = of(&fd);
        assert_ne!(buffer, before.0);
        assert_eq!(congestion_control, "reno");
    }
}
