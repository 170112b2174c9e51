//! A minimal Linux storage server: an epoll loop with `pread` and `pwrite` on a file. Its client
//! has one request in flight.
//!
//! Represents the paper's server on libevent and libaio (`[ReFlex §5.1]`): no tenants, no SLOs, no
//! polling. A single request has nothing to overlap with, so libaio would change nothing. No
//! program of another project has a protocol this simple, or polls for responses.

use anyhow::{Context as _, Result, bail, ensure};
use base::units::CoreId;
use base::{Latencies, Prng};
use load::Latency;
use reactor::placement;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Operation (32 bits), length (32 bits), offset (64 bits); the data of a write follows.
const REQUEST_BYTES: usize = 16;

/// Status (32 bits); the data of a read follows.
const ANSWER_BYTES: usize = 4;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FAILED: u32 = 1;

/// The longest request that the server accepts, in bytes.
const DATA_MAX: usize = 1 << 20;

/// Longer than any response of a working server takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads of a silent socket between two checks of the clock.
const POLLS: u32 = 1000;

/// How a client waits for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Sleeps in the kernel.
    Sleeps,
    /// Polls the socket.
    Polls,
}

/// Requests one after the other at random offsets.
#[derive(Clone, Copy, Debug)]
pub struct OneByOne {
    /// The requests are writes instead of reads.
    pub writes: bool,
    /// Bytes per request.
    pub bytes: u32,
    /// Bytes of the storage.
    pub device_bytes: u64,
    /// Warm-up.
    pub warmup: Duration,
    /// Measured time.
    pub measured: Duration,
    /// Seed of the offsets.
    pub seed: u64,
}

/// A client.
#[derive(Debug)]
pub struct Plain {
    stream: TcpStream,
    wait: Wait,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Plain {
    /// Connects.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn connect(address: SocketAddr, wait: Wait) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            wait,
            message: Vec::new(),
            answer: Vec::new(),
        })
    }

    /// Fills `data` with the bytes at `offset`.
    ///
    /// # Errors
    /// A broken connection, or a failed request.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.request(READ, offset, data.len(), &[])?;
        data.copy_from_slice(&self.answer[ANSWER_BYTES..]);
        Ok(())
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.request(WRITE, offset, data.len(), data)
    }

    fn request(&mut self, operation: u32, at: u64, length: usize, data: &[u8]) -> Result<()> {
        self.message.clear();
        self.message.extend(operation.to_le_bytes());
        self.message.extend(u32::try_from(length)?.to_le_bytes());
        self.message.extend(at.to_le_bytes());
        self.message.extend(data);
        self.stream.write_all(&self.message)?;
        let expected = ANSWER_BYTES + length - data.len();
        self.answer.resize(expected, 0);
        let mut filled = 0;
        while filled < expected {
            let count = self.receive(filled)?;
            ensure!(count > 0, "the server closed the connection");
            filled += count;
            if filled >= ANSWER_BYTES && number(&self.answer, 0) == FAILED {
                bail!("the server's file fails");
            }
        }
        Ok(())
    }

    fn receive(&mut self, filled: usize) -> Result<usize> {
        let buffer = &mut self.answer[filled..];
        if self.wait == Wait::Sleeps {
            return Ok(self.stream.read(buffer)?);
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for _ in 0..POLLS {
                match recv(&self.stream, &mut *buffer, RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    done => return Ok(done?.0),
                }
            }
        }
        bail!("the server does not answer")
    }

    /// Sends requests on the calling thread. Returns requests per second, and their latency.
    ///
    /// # Errors
    /// The first request that fails.
    pub fn run(&mut self, load: &OneByOne) -> Result<(f64, Latency)> {
        let mut random = Prng::from_seed(load.seed);
        let mut data = vec![0; load.bytes as usize];
        random.fill(&mut data);
        let places = load.device_bytes / u64::from(load.bytes);
        ensure!(places > 0, "the storage is smaller than a request");
        let mut latency = Latencies::new();
        let start = Instant::now();
        let mut began = start;
        while began - start < load.warmup + load.measured {
            let offset = random.below(places) * u64::from(load.bytes);
            if load.writes {
                self.write(offset, &data).context("a write failed")?;
            } else {
                self.read(offset, &mut data).context("a read failed")?;
            }
            let now = Instant::now();
            if began - start >= load.warmup {
                latency.record((now - began).into());
            }
            began = now;
        }
        ensure!(
            !latency.is_empty(),
            "no request completed in the measured time; measure for longer"
        );
        let per_second = latency.count() as f64 / load.measured.as_secs_f64();
        Ok((per_second, Latency::of(&latency)))
    }
}

/// A server of one connection at a time, on a separate thread until it is dropped. The client must
/// disconnect first.
#[derive(Debug)]
pub struct PlainServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl PlainServer {
    /// Serves a file on a port of the loopback, pinned to `core` if there is one.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn start(path: &Path, core: Option<u32>) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("plain server".to_owned());
        let thread = thread.spawn(move || {
            if let Some(core) = core {
                placement::pin_to(CoreId(core))?;
            }
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                // The client notices if its connection is closed early.
                let _ = serve(&file, stream?);
            }
            Ok(())
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
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread.
        if TcpStream::connect(self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Answers the requests of a connection, one at a time, until it ends.
fn serve(file: &File, mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let data = EventData::new_u64(0);
    epoll::add(&epoll, &stream, data, EventFlags::IN)?;
    let mut events = [Event {
        flags: EventFlags::empty(),
        data,
    }];
    let mut request = vec![0; REQUEST_BYTES + DATA_MAX];
    let mut filled = 0;
    let mut answer = Vec::new();
    loop {
        retry_on_intr(|| epoll::wait(&epoll, &mut events[..], None))?;
        let count = stream.read(&mut request[filled..])?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        if filled < REQUEST_BYTES {
            continue;
        }
        let (operation, length) = (number(&request, 0), number(&request, 4) as usize);
        ensure!(
            matches!(operation, READ | WRITE) && length <= DATA_MAX,
            "no request"
        );
        let offset = u64::from(number(&request, 12)) << 32 | u64::from(number(&request, 8));
        let (written, read) = if operation == WRITE {
            (length, 0)
        } else {
            (0, length)
        };
        if filled < REQUEST_BYTES + written {
            continue;
        }
        answer.clear();
        answer.resize(ANSWER_BYTES + read, 0);
        let result = if operation == READ {
            file.read_exact_at(&mut answer[ANSWER_BYTES..], offset)
        } else {
            file.write_all_at(&request[REQUEST_BYTES..][..written], offset)
        };
        if result.is_err() {
            answer.truncate(ANSWER_BYTES);
            answer.copy_from_slice(&FAILED.to_le_bytes());
        }
        stream.write_all(&answer)?;
        filled = 0;
    }
}

/// Returns the 32-bit number at offset `at` of a message.
fn number(message: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1 << 20;

    fn load(client: &mut Plain, writes: bool, seed: u64) {
        let load = OneByOne {
            writes,
            bytes: 4096,
            device_bytes: BYTES as u64,
            warmup: Duration::from_millis(5),
            measured: Duration::from_millis(40),
            seed,
        };
        let (per_second, latency) = client.run(&load).unwrap();
        assert!(per_second > 0.0 && latency.avg > 0.0);
        assert!(latency.p50 <= latency.p95 && latency.p95 <= latency.max);
    }

    #[test]
    fn a_file_is_served_to_clients_that_sleep_or_poll() {
        let path = block::temporary("plain");
        let mut content = vec![0; BYTES];
        Prng::from_seed(9).fill(&mut content);
        std::fs::write(&path, &content).unwrap();
        let server = PlainServer::start(&path, None).unwrap();
        for (wait, seed) in [(Wait::Sleeps, 3), (Wait::Polls, 4)] {
            let content = std::fs::read(&path).unwrap();
            let mut client = Plain::connect(server.address(), wait).unwrap();
            let mut data = [0; 4096];
            client.read(8192, &mut data).unwrap();
            assert_eq!(data, content[8192..12_288]);
            client.write(4096, &[7; 4096]).unwrap();
            client.read(4096, &mut data).unwrap();
            assert_eq!(data, [7; 4096]);
            load(&mut client, false, seed);
            load(&mut client, true, seed);
            let now = std::fs::read(&path).unwrap();
            let chunks = content.chunks(4096).zip(now.chunks(4096));
            let changed = chunks.filter(|(before, now)| before != now).count();
            assert!(changed > 1, "random writes have written nothing");
            // A read beyond the end fails, and the connection stays open.
            let beyond = client.read(BYTES as u64, &mut data).unwrap_err();
            assert!(beyond.to_string().contains("file fails"), "{beyond}");
            client.read(0, &mut data).unwrap();
        }
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&[0xff; 64]).unwrap();
        let mut answer = Vec::new();
        // Closed, or reset because the server did not read a part.
        let closed = stream.read_to_end(&mut answer);
        assert!(closed.is_err() || answer.is_empty());
        let mut next = Plain::connect(server.address(), Wait::Sleeps).unwrap();
        next.read(0, &mut [0; 512]).unwrap();
    }
}
