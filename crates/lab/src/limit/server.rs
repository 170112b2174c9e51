//! The server's end: answers all received requests with one system call.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use reactor::clock::thread_cpu;

use super::case::RawCase;
use super::error::RawError;
use super::limits;
use super::message::{Message, Parser, REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
use super::outbox::{Outbox, Sent};
use super::region::Region;
use super::socket::{self, Received};

/// Counters of a server for its one client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerReport {
    /// Requests answered.
    pub exchanges: u64,
    /// CPU seconds of the server's thread from the first byte to the last.
    pub cpu_seconds: f64,
}

/// A server on a separate thread. It serves one client and ends; dropping it stops it.
#[derive(Debug)]
pub struct RawServer {
    addr: SocketAddr,
    stop: Arc<StopHandle>,
    thread: Option<JoinHandle<Result<ServerReport, RawError>>>,
}

impl RawServer {
    /// Listens on a free port of the loopback address; `core` pins the server's thread.
    ///
    /// # Errors
    /// The case is invalid; no port is available; the thread cannot be pinned.
    pub fn start(case: RawCase, core: Option<usize>) -> Result<Self, RawError> {
        case.check()?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(RawError::call("bind"))?;
        let addr = listener
            .local_addr()
            .map_err(RawError::call("getsockname"))?;
        let stop = Arc::new(StopHandle {
            listener: listener.try_clone().map_err(RawError::call("dup"))?,
            connection: Mutex::new(None),
            stopped: AtomicBool::new(false),
        });
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("raw-server".into())
            .spawn(move || {
                let set_up = socket::pin(core).map(|()| Region::new(served_bytes(&case)));
                let region = match set_up {
                    Ok(region) => region,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return Err(RawError::Stopped);
                    }
                };
                let _ = ready.send(Ok(()));
                let served = Served {
                    stream: seen.accept(&listener)?,
                    stop: &seen,
                };
                let outcome = answer(&served.stream, &case, &region);
                // Read while the client cannot have seen the end: without a stop until now, the
                // server ended by itself.
                if seen.stopped.load(Ordering::Acquire) {
                    Err(RawError::Stopped)
                } else {
                    outcome
                }
            })
            .map_err(RawError::call("clone"))?;
        let server = Self {
            addr,
            stop,
            thread: Some(thread),
        };
        // Ensures that the server has pinned itself and touched its memory before a client starts.
        is_ready
            .recv()
            .map_err(|_| RawError::Panicked { end: "server" })??;
        Ok(server)
    }

    /// Address of the server.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until the client has closed its connection, and returns the counters.
    ///
    /// # Errors
    /// The error that ended the server early.
    pub fn finish(mut self) -> Result<ServerReport, RawError> {
        self.join()
    }

    /// Stops the server in any state; returns its error if it had failed before.
    pub(super) fn stop(mut self) -> Option<RawError> {
        self.stop.stop();
        match self.join() {
            Ok(_) | Err(RawError::Stopped) => None,
            Err(error) => Some(error),
        }
    }

    fn join(&mut self) -> Result<ServerReport, RawError> {
        let thread = self.thread.take();
        let thread = thread.expect("only finish and drop take the thread");
        RawError::of_end("server", thread.join())
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            let _ = thread.join();
        }
    }
}

/// Accepts one client and answers it until it closes the connection; on the calling thread.
///
/// # Errors
/// The case is invalid; a system call fails; the client violates the exchange.
pub fn serve(listener: &TcpListener, case: &RawCase) -> Result<ServerReport, RawError> {
    case.check()?;
    let region = Region::new(served_bytes(case));
    let (stream, _) = listener.accept().map_err(RawError::call("accept"))?;
    answer(&stream, case, &region)
}

/// Stops a server that waits in the kernel, by shutting down the socket that it waits for.
#[derive(Debug)]
struct StopHandle {
    listener: TcpListener,
    connection: Mutex<Option<TcpStream>>,
    stopped: AtomicBool,
}

impl StopHandle {
    fn connection(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, listener: &TcpListener) -> Result<TcpStream, RawError> {
        let accepted = listener.accept();
        if self.stopped.load(Ordering::Acquire) {
            return Err(RawError::Stopped);
        }
        let (stream, _) = accepted.map_err(RawError::call("accept"))?;
        let copy = stream.try_clone().map_err(RawError::call("dup"))?;
        *self.connection() = Some(copy);
        // A stop between the two checks found no connection to shut down.
        if self.stopped.load(Ordering::Acquire) {
            return Err(RawError::Stopped);
        }
        Ok(stream)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(stream) = self.connection().as_ref() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A connection whose every copy is closed when the server's thread ends for any reason, so that
/// the client notices.
#[derive(Debug)]
struct Served<'a> {
    stream: TcpStream,
    stop: &'a StopHandle,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.stop.connection().take();
    }
}

/// The loop: receive, parse the requests, answer all of them.
fn answer(stream: &TcpStream, case: &RawCase, region: &Region) -> Result<ServerReport, RawError> {
    socket::tune(stream)?;
    answer_tuned(stream, case, region)
}

/// As [`answer`], on a socket whose buffers are already set.
pub(super) fn answer_tuned(
    stream: &TcpStream,
    case: &RawCase,
    region: &Region,
) -> Result<ServerReport, RawError> {
    let cpu_start = thread_cpu();
    let blocks = case.response_blocks() as u64;
    let mut receive_region = Region::new(limits::RECEIVE_BYTES);
    let mut parser = Parser::new(REQUEST_HEADER_BYTES, case.request_payload());
    let mut outbox = Outbox::new(
        RESPONSE_HEADER_BYTES,
        case.response_payload(),
        case.messages_per_send,
    );
    let mut pending: VecDeque<Message> = VecDeque::with_capacity(case.depth);
    let mut exchanges = 0;
    loop {
        let buffer = receive_region.bytes_mut();
        match socket::receive(stream, buffer, case.poll, !outbox.is_empty())? {
            Received::Bytes(bytes) => parser.feed(&buffer[..bytes], |message| {
                if pending.len() == case.depth {
                    let what = format!("more than {} requests in flight", case.depth);
                    return Err(RawError::Peer { what });
                }
                pending.push_back(message);
                Ok(())
            })?,
            Received::Nothing => {}
            Received::End if pending.is_empty() && outbox.is_empty() && !parser.is_inside() => {
                break;
            }
            Received::End => {
                return Err(RawError::Closed {
                    outstanding: pending.len().max(1),
                });
            }
        }
        loop {
            while outbox.room() > 0
                && let Some(message) = pending.pop_front()
            {
                exchanges += 1;
                outbox.push(message, block_offset(case, message.block % blocks));
            }
            let full = outbox.send(stream, region.bytes())? == Sent::Part;
            if full || pending.is_empty() {
                break;
            }
        }
    }
    let cpu_seconds = thread_cpu().saturating_sub(cpu_start).as_secs_f64();
    Ok(ServerReport {
        exchanges,
        cpu_seconds,
    })
}

/// Bytes of memory for response payloads; zero if responses have none.
pub(super) fn served_bytes(case: &RawCase) -> usize {
    if case.response_payload() == 0 {
        0
    } else {
        case.region_bytes
    }
}

/// Offset of a block of the region.
pub(super) fn block_offset(case: &RawCase, block: u64) -> usize {
    let block = usize::try_from(block).expect("a block number below the region's count of blocks");
    block * case.response_payload()
}
