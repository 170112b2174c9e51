//! A TCP connection that is read in whole messages.

use anyhow::{Context as _, Result};
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longer than any answer of a working server takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A receive takes as much as has come, up to this: more than an answer.
const RECEIVE_BYTES: usize = 64 << 10;

/// Looks at a silent socket between two looks at the clock.
const LOOKS: u32 = 1000;

/// Way in which a client waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps.
    Sleeps,
    /// It looks again and again.
    Polls,
}

#[derive(Debug)]
pub(super) struct Connection {
    reader: BufReader<Source>,
}

#[derive(Debug)]
struct Source {
    stream: TcpStream,
    wait: Wait,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.wait == Wait::Sleeps {
            return self.stream.read(buffer);
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                match self.stream.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => return done,
                }
            }
            if start.elapsed() > PATIENCE {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Connection {
    pub(super) fn open(address: SocketAddr, wait: Wait) -> Result<Self> {
        let open = || {
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nonblocking(wait == Wait::Polls)?;
            Ok::<_, std::io::Error>(stream)
        };
        let stream = open().with_context(|| format!("cannot connect to {address}"))?;
        let source = Source { stream, wait };
        Ok(Self {
            reader: BufReader::with_capacity(RECEIVE_BYTES, source),
        })
    }

    /// Sends a whole message.
    pub(super) fn send(&mut self, mut message: &[u8]) -> Result<()> {
        let start = Instant::now();
        let stream = &mut self.reader.get_mut().stream;
        while !message.is_empty() {
            match stream.write(message) {
                Ok(sent) => message = &message[sent..],
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
                        && start.elapsed() < PATIENCE => {}
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }

    /// Receives so many bytes, neither more nor fewer.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.reader
            .read_exact(buffer)
            .context("the server does not answer, or has closed the connection")
    }

    /// Receives and drops `count` bytes of a message.
    pub(super) fn skip(&mut self, mut count: usize) -> Result<()> {
        while count > 0 {
            let there = self.reader.fill_buf().context("cannot receive")?.len();
            anyhow::ensure!(there > 0, "the server has closed the connection");
            let taken = there.min(count);
            self.reader.consume(taken);
            count -= taken;
        }
        Ok(())
    }
}

/// Big-endian numbers at fixed places, as both protocols have them.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// See [`u32_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
