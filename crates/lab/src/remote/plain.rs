//! A small storage server as one writes it on Linux, and its client: an epoll loop that serves
//! many connections by one thread, `pread` and `pwrite` on a file, and a header of fixed size.
//!
//! It stands for the paper's server of libevent and libaio (`[ReFlex §5.1]`): no tenants, no
//! promises, no polling. One request at a time has nothing to overlap with, so it does not need libaio.

use super::Remote;
use super::connection::{Connection, Wait, u32_at, u64_at};
use anyhow::{Context as _, Result, ensure};
use base::units::CoreId;
use reactor::placement;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread::JoinHandle;

/// Operation, length, offset.
const REQUEST_BYTES: usize = 16;
/// Status, length.
const ANSWER_BYTES: usize = 8;

const READ: u32 = 0;
const WRITE: u32 = 1;
const DONE: u32 = 0;
const FAILED: u32 = 1;

/// The longest request that the server takes.
const REQUEST_DATA_MAX: usize = 1 << 20;

/// Connections that the server takes.
const CONNECTIONS_MAX: usize = 1024;

/// Token of the event that wakes the loop; those of connections begin at 0.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// The client's end.
#[derive(Debug)]
pub struct Plain {
    connection: Connection,
    message: Vec<u8>,
}

impl Plain {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn connect(address: SocketAddr, wait: Wait) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(address, wait)?,
            message: Vec::new(),
        })
    }

    /// Sends a request, and receives the head of its answer; what was read follows.
    fn ask(&mut self, operation: u32, at: u64, length: usize, data: &[u8]) -> Result<()> {
        self.message.clear();
        self.message.extend(operation.to_be_bytes());
        self.message.extend(u32::try_from(length)?.to_be_bytes());
        self.message.extend(at.to_be_bytes());
        self.message.extend(data);
        self.connection.send(&self.message)?;
        let mut answer = [0; ANSWER_BYTES];
        self.connection.receive(&mut answer)?;
        ensure!(u32_at(&answer, 0) == DONE, "the server's file fails");
        let expected = if operation == READ { length } else { 0 };
        ensure!(
            u32_at(&answer, 4) as usize == expected,
            "an answer of another length"
        );
        Ok(())
    }
}

impl Remote for Plain {
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.ask(READ, offset, data.len(), &[])?;
        self.connection.receive(data)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.ask(WRITE, offset, data.len(), data)
    }
}

/// The server, on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct PlainServer {
    address: SocketAddr,
    /// Lives as long as the thread with its epoll set.
    stop: OwnedFd,
    thread: Option<JoinHandle<Result<()>>>,
}

impl PlainServer {
    /// Serves a file on a port of the loopback, on `core` if there is one.
    ///
    /// # Errors
    /// When the file cannot be opened, or the thread not be had.
    pub fn start(path: &Path, core: Option<u32>) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let serving = Loop::new(file, listener, &stop)?;
        let thread = std::thread::Builder::new().name("plain server".to_owned());
        let thread = thread.spawn(move || {
            if let Some(core) = core {
                placement::pin_to(CoreId(core))?;
            }
            serving.run()
        })?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PlainServer {
    fn drop(&mut self) {
        // An event counter that was never written takes any number.
        let _ = rustix::io::write(&self.stop, &1_u64.to_le_bytes());
        if let Some(thread) = self.thread.take() {
            // What made it end early, its client was told by a closed connection.
            let _ = thread.join();
        }
    }
}

/// A connection, and what of a request has come.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
    filled: usize,
}

#[derive(Debug)]
struct Loop {
    file: File,
    listener: TcpListener,
    epoll: OwnedFd,
    peers: Vec<Option<Peer>>,
    answer: Vec<u8>,
}

impl Loop {
    fn new(file: File, listener: TcpListener, stop: &OwnedFd) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = EventFlags::IN;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), flags)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), flags)?;
        Ok(Self {
            file,
            listener,
            epoll,
            peers: Vec::new(),
            answer: Vec::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        let mut events = vec![
            Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            };
            64
        ];
        loop {
            let count = match epoll::wait(&self.epoll, &mut events[..], None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for event in &events[..count] {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    number => self.serve(usize::try_from(number)?),
                }
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("cannot accept"),
        };
        let free = self.peers.iter().position(Option::is_none);
        let number = free.unwrap_or(self.peers.len());
        if number == CONNECTIONS_MAX {
            return Ok(());
        }
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
        let peer = Peer {
            stream,
            received: vec![0; REQUEST_BYTES + REQUEST_DATA_MAX],
            filled: 0,
        };
        if number == self.peers.len() {
            self.peers.push(None);
        }
        self.peers[number] = Some(peer);
        Ok(())
    }

    /// Receives once from a connection, and answers what has come whole. One that breaks, or sends
    /// what is no request, is closed.
    fn serve(&mut self, number: usize) {
        let Some(Some(peer)) = self.peers.get_mut(number) else {
            return;
        };
        let alive = peer
            .receive()
            .and_then(|open| {
                if open {
                    peer.answer(&self.file, &mut self.answer)?;
                }
                Ok(open)
            })
            .unwrap_or(false);
        if !alive {
            // Closing it takes it out of the epoll set.
            self.peers[number] = None;
        }
    }
}

impl Peer {
    /// The other end still sends.
    fn receive(&mut self) -> Result<bool> {
        match self.stream.read(&mut self.received[self.filled..]) {
            Ok(count) => {
                self.filled += count;
                Ok(count > 0)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers every request that has come whole.
    fn answer(&mut self, file: &File, answer: &mut Vec<u8>) -> Result<()> {
        let mut at = 0;
        loop {
            let rest = &self.received[at..self.filled];
            if rest.len() < REQUEST_BYTES {
                break;
            }
            let (operation, length) = (u32_at(rest, 0), u32_at(rest, 4) as usize);
            let offset = u64_at(rest, 8);
            ensure!(
                matches!(operation, READ | WRITE) && length <= REQUEST_DATA_MAX,
                "no request"
            );
            let whole = REQUEST_BYTES + if operation == WRITE { length } else { 0 };
            if rest.len() < whole {
                break;
            }
            let returned = if operation == READ { length } else { 0 };
            answer.clear();
            answer.resize(ANSWER_BYTES + returned, 0);
            let result = if operation == READ {
                file.read_exact_at(&mut answer[ANSWER_BYTES..], offset)
            } else {
                file.write_all_at(&rest[REQUEST_BYTES..whole], offset)
            };
            if result.is_err() {
                answer.truncate(ANSWER_BYTES);
            }
            let status = if result.is_ok() { DONE } else { FAILED };
            let bytes = u32::try_from(answer.len() - ANSWER_BYTES)?;
            answer[..4].copy_from_slice(&status.to_be_bytes());
            answer[4..8].copy_from_slice(&bytes.to_be_bytes());
            send(&mut self.stream, answer)?;
            at += whole;
        }
        self.received.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

/// Sends an answer; a peer that does not take it is waited for, as it has one request at a time.
fn send(stream: &mut TcpStream, mut answer: &[u8]) -> Result<()> {
    while !answer.is_empty() {
        match stream.write(answer) {
            Ok(sent) => answer = &answer[sent..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stream.set_nonblocking(false)?;
                stream.write_all(answer)?;
                stream.set_nonblocking(true)?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
