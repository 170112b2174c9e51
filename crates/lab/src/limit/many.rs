//! Many connections with few requests each: a plain program on epoll.
//!
//! Each end waits for readable sockets and serves them in the kernel's order, with one receive and
//! one send per request. The client uses its connections in turn, like the load generator with the
//! queues of many hosts.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use base::Prng;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::case::{Poll, RawCase};
use super::client::{Clock, RawResult};
use super::error::RawError;
use super::limits;
use super::message::{Message, Parser, REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
use super::region::Region;
use super::server::{block_offset, served_bytes};
use super::socket::{self, Received};

/// Most readable sockets returned by one wait.
const EVENTS: usize = 256;

/// An exchange over many connections, each with at most one request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManyCase {
    /// Message sizes, and requests in flight on all connections together. Both ends sleep when
    /// idle, and no messages are batched.
    pub raw: RawCase,
    /// Connections; more than the requests in flight.
    pub connections: usize,
}

impl ManyCase {
    /// 4 KiB random reads on 2,500 connections, 250 in flight.
    #[must_use]
    pub const fn read_4k_2500_connections() -> Self {
        Self {
            raw: RawCase::read("read_4k_2500_connections", 4 << 10, 250, Poll::Never),
            connections: 2500,
        }
    }

    fn check(&self) -> Result<(), RawError> {
        self.raw.check()?;
        let range = self.raw.depth + 1..=limits::CONNECTIONS_MAX;
        if range.contains(&self.connections) {
            return Ok(());
        }
        let (start, end) = range.into_inner();
        let connections = self.connections;
        let what = format!("connections is {connections}, but must be {start} to {end}");
        let case = self.raw.name;
        Err(RawError::Case { case, what })
    }
}

/// Runs one exchange: a server thread on `server_core`, a client thread on `client_core`.
///
/// # Errors
/// The case is invalid; a thread cannot be created or pinned; a connection fails.
pub fn run_many(
    case: &ManyCase,
    server_core: Option<usize>,
    client_core: Option<usize>,
    warmup: Duration,
    measured: Duration,
) -> Result<RawResult, RawError> {
    case.check()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.map_err(RawError::call("bind"))?;
    let address = listener.local_addr();
    let address = address.map_err(RawError::call("getsockname"))?;
    std::thread::scope(|scope| {
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let serve = || {
            // Closes the listener with the server, so that no client waits for a connection.
            let listener = listener;
            socket::pin(server_core)?;
            serve(case, &listener)
        };
        let server = thread("many-server").spawn_scoped(scope, serve);
        let server = server.map_err(RawError::call("clone"))?;
        let load = || {
            socket::pin(client_core)?;
            load(case, address, warmup, measured)
        };
        let client = thread("many-client").spawn_scoped(scope, load);
        let client = match client {
            Ok(client) => RawError::of_end("client", client.join()),
            Err(error) => Err(RawError::call("clone")(error)),
        };
        match (RawError::of_end("server", server.join()), client) {
            (Ok(()) | Err(RawError::Stopped), client) => client,
            // If the server failed, its error is more specific than the client's.
            (Err(error), _) => Err(error),
        }
    })
}

/// One connection of either end.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    parser: Parser,
}

impl Peer {
    fn new(stream: TcpStream, header_bytes: usize, payload_bytes: usize) -> Result<Self, RawError> {
        socket::tune(&stream)?;
        // The data is small compared with the socket's buffer; a peer that accepts nothing is an
        // error.
        let limited = stream.set_write_timeout(Some(limits::STALL));
        limited.map_err(RawError::call("setsockopt"))?;
        let parser = Parser::new(header_bytes, payload_bytes);
        Ok(Self { stream, parser })
    }

    fn send(&self, message: Message, header_bytes: usize, payload: &[u8]) -> Result<(), RawError> {
        let mut header = [0; REQUEST_HEADER_BYTES];
        message.encode(&mut header);
        let mut parts = [IoSlice::new(&header[..header_bytes]), IoSlice::new(payload)];
        let mut left = &mut parts[..];
        while !left.is_empty() {
            let mut control = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.stream, left, &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => IoSlice::advance_slices(&mut left, sent),
                Err(Errno::INTR) => {}
                Err(error) => return Err(RawError::call("sendmsg")(error)),
            }
        }
        Ok(())
    }
}

/// The sockets of one end, and which of them are readable.
struct Sockets {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Sockets {
    fn new(peers: &[Peer]) -> Result<Self, RawError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(RawError::call("epoll_create"))?;
        for (index, peer) in (0..).zip(peers) {
            let data = epoll::EventData::new_u64(index);
            epoll::add(&epoll, &peer.stream, data, epoll::EventFlags::IN)
                .map_err(RawError::call("epoll_ctl"))?;
        }
        let events = Vec::with_capacity(EVENTS);
        Ok(Self { epoll, events })
    }

    /// Waits until a socket is readable, at most [`limits::STALL`]. Returns true if one is.
    fn wait(&mut self) -> Result<bool, RawError> {
        self.events.clear();
        let found = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, found, Some(&socket::PATIENCE)) {
            Ok(found) => Ok(found > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(RawError::call("epoll_wait")(error)),
        }
    }

    fn readable(&self) -> impl Iterator<Item = usize> {
        let index = |event: &epoll::Event| usize::try_from(event.data.u64());
        let indices = self.events.iter().map(index);
        indices.map(|index| index.expect("an index of ours"))
    }
}

/// The server: answers each request with a block, until all clients have closed.
fn serve(case: &ManyCase, listener: &TcpListener) -> Result<(), RawError> {
    let raw = &case.raw;
    let (blocks, payload) = (raw.response_blocks() as u64, raw.response_payload());
    let region = Region::new(served_bytes(raw));
    let mut peers = Vec::with_capacity(case.connections);
    for _ in 0..case.connections {
        let stream = accept(listener)?;
        peers.push(Peer::new(
            stream,
            REQUEST_HEADER_BYTES,
            raw.request_payload(),
        )?);
    }
    let mut sockets = Sockets::new(&peers)?;
    let mut buffer = Region::new(limits::RECEIVE_BYTES);
    let mut open = peers.len();
    while open > 0 {
        if !sockets.wait()? {
            return Err(RawError::Stopped);
        }
        for index in sockets.readable() {
            let Peer { stream, parser } = &mut peers[index];
            let bytes = match socket::receive(stream, buffer.bytes_mut(), Poll::Always, false)? {
                Received::Bytes(bytes) => bytes,
                Received::Nothing => continue,
                Received::End => {
                    let removed = epoll::delete(&sockets.epoll, &*stream);
                    removed.map_err(RawError::call("epoll_ctl"))?;
                    open -= 1;
                    continue;
                }
            };
            let mut request = None;
            parser.feed(&buffer.bytes()[..bytes], |message| {
                request = Some(message);
                Ok(())
            })?;
            if let Some(message) = request {
                let at = block_offset(raw, message.block % blocks);
                let block = &region.bytes()[at..at + payload];
                peers[index].send(message, RESPONSE_HEADER_BYTES, block)?;
            }
        }
    }
    Ok(())
}

/// Accepts a client; fails if none connects in time.
fn accept(listener: &TcpListener) -> Result<TcpStream, RawError> {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut polled, Some(&socket::PATIENCE)) {
        Ok(0) => Err(RawError::Stopped),
        Ok(_) | Err(Errno::INTR) => match listener.accept() {
            Ok((stream, _)) => Ok(stream),
            Err(error) => Err(RawError::call("accept")(error)),
        },
        Err(error) => Err(RawError::call("poll")(error)),
    }
}

/// Connects every peer.
fn connect(case: &ManyCase, addr: SocketAddr) -> Result<Vec<Peer>, RawError> {
    let connect = |_| {
        let stream = TcpStream::connect(addr);
        let stream = stream.map_err(|source| RawError::Connect { addr, source })?;
        Peer::new(stream, RESPONSE_HEADER_BYTES, case.raw.response_payload())
    };
    (0..case.connections).map(connect).collect()
}

/// The client: uses the connections in turn, with a new request for each response.
fn load(
    case: &ManyCase,
    address: SocketAddr,
    warmup: Duration,
    measured: Duration,
) -> Result<RawResult, RawError> {
    let raw = &case.raw;
    let mut peers = connect(case, address)?;
    let mut sockets = Sockets::new(&peers)?;
    let mut buffer = Region::new(limits::RECEIVE_BYTES);
    let written = Region::new(raw.request_payload());
    let (blocks, mut random) = (raw.response_blocks() as u64, Prng::from_seed(2));
    let mut clock = Clock::new(warmup, measured);
    // Connections without a request, in the order in which they became idle.
    let mut idle: VecDeque<usize> = (0..peers.len()).collect();
    let mut asked = vec![(0, 0); peers.len()];
    let (mut next, mut outstanding) = (0, 0);
    loop {
        while !clock.is_over() && outstanding < raw.depth {
            let index = idle.pop_front().expect("more connections than requests");
            let block = random.below(blocks);
            let sequence = next;
            (next, outstanding) = (next + 1, outstanding + 1);
            asked[index] = (sequence, clock.now_ns());
            let message = Message { sequence, block };
            peers[index].send(message, REQUEST_HEADER_BYTES, written.bytes())?;
        }
        if outstanding == 0 {
            break;
        }
        if !sockets.wait()? {
            let seconds = limits::STALL.as_secs();
            return Err(RawError::Stalled {
                seconds,
                outstanding,
            });
        }
        for index in sockets.readable() {
            let Peer { stream, parser } = &mut peers[index];
            let bytes = match socket::receive(stream, buffer.bytes_mut(), Poll::Always, false)? {
                Received::Bytes(bytes) => bytes,
                Received::Nothing => continue,
                Received::End => return Err(RawError::Closed { outstanding }),
            };
            clock.progress();
            let (expected, issued_ns) = asked[index];
            parser.feed(&buffer.bytes()[..bytes], |message| {
                if message.sequence != expected || outstanding == 0 {
                    let what = format!("response {} instead of {expected}", message.sequence);
                    return Err(RawError::Peer { what });
                }
                outstanding -= 1;
                idle.push_back(index);
                clock.record(issued_ns, 1);
                Ok(())
            })?;
        }
    }
    for peer in &peers {
        let shut = peer.stream.shutdown(Shutdown::Write);
        shut.map_err(RawError::call("shutdown"))?;
    }
    clock.result()
}
