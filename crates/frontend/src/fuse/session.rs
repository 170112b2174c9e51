//! The session with the kernel's FUSE driver: reads its messages and writes the replies.

use super::abi::{Answer, Header, MINOR_MIN, Request, VERSION, WRITE_HEADER_BYTES, answer_header};
use super::gathered::Gathered;
use super::limits::{GATHERED_ANSWER_MAX_BYTES, REQUEST_MAX_BYTES};
use crate::log_budget::LogBudget;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of a message buffer: the kernel requires room for its largest message.
const MESSAGE_BYTES: usize = REQUEST_MAX_BYTES as usize + 4096;
const _: () = assert!(MESSAGE_BYTES >= REQUEST_MAX_BYTES as usize + WRITE_HEADER_BYTES);

/// The connection to the kernel. It ends when the last copy of its file is closed.
#[derive(Debug)]
pub(super) struct Session {
    file: Arc<File>,
    /// The minor version of the kernel's protocol.
    minor: u32,
    gathered: Gathered,
    log: LogBudget,
}

impl Session {
    /// Negotiates the version with the kernel, which sent its own on mounting.
    ///
    /// # Errors The kernel is too old, or the connection failed.
    pub(super) fn begin(connection: OwnedFd) -> io::Result<Self> {
        let mut session = Self {
            file: Arc::new(File::from(connection)),
            minor: 0,
            gathered: Gathered::new()?,
            log: LogBudget::default(),
        };
        let mut message = Self::memory();
        loop {
            let len = match rustix::io::read(&*session.file, &mut message[..]) {
                Err(Errno::INTR | Errno::NOENT) => continue,
                read => read?,
            };
            let read = Header::parse(&message[..len]);
            let parsed = read.and_then(|(header, body)| {
                let request = Request::parse(&header, body)?;
                Some((header, request))
            });
            let Some((header, request)) = parsed else {
                return Err(io::Error::other("the first message is malformed"));
            };
            let Request::Init {
                version: (major, minor),
                readahead,
                capabilities,
            } = request
            else {
                session.refuse(header.unique, Errno::IO);
                return Err(io::Error::other("the first message is not FUSE_INIT"));
            };
            if major > VERSION.0 {
                session.answer(header.unique, Answer::version().bytes());
                continue;
            }
            if major < VERSION.0 || minor < MINOR_MIN {
                session.refuse(header.unique, Errno::PROTO);
                let version = format!("FUSE protocol version {major}.{minor} is too old");
                return Err(io::Error::other(version));
            }
            session.minor = minor;
            let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX);
            let answer = Answer::init(readahead, capabilities, page_bytes);
            session.answer(header.unique, answer.bytes());
            rustix::fs::fcntl_setfl(&*session.file, OFlags::NONBLOCK)?;
            return Ok(session);
        }
    }

    /// Continues the session of a predecessor, which has negotiated this version.
    ///
    /// # Errors The kernel's error on creating a ring.
    pub(super) fn taken_over(connection: OwnedFd, minor: u32) -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(File::from(connection)),
            minor,
            gathered: Gathered::new()?,
            log: LogBudget::default(),
        })
    }

    /// Allocates the buffer for one message.
    pub(super) fn memory() -> Vec<u8> {
        vec![0; MESSAGE_BYTES]
    }

    /// The file of the connection; readable while there are messages.
    pub(super) const fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The minor version of the kernel's protocol.
    pub(super) const fn minor(&self) -> u32 {
        self.minor
    }

    /// Reads a message into a buffer from [`memory`](Self::memory), and returns its length in
    /// bytes; `None` if there is none.
    ///
    /// # Errors
    /// [`Errno::NODEV`] if the file system is no longer mounted.
    pub(super) fn read(&self, memory: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::io::read(&*self.file, &mut *memory) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::AGAIN) => return Ok(None),
                // The request ended while it was being read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Replies to a request.
    pub(super) fn answer(&self, unique: u64, bytes: &[u8]) {
        self.send(unique, 0, bytes);
    }

    /// Replies to a request with an error.
    pub(super) fn refuse(&self, unique: u64, errno: Errno) {
        self.send(unique, errno.raw_os_error(), &[]);
    }

    fn send(&self, unique: u64, errno: i32, bytes: &[u8]) {
        let header = answer_header(unique, errno, bytes.len());
        let pieces = [IoSlice::new(&header), IoSlice::new(bytes)];
        if let Err(errno) = rustix::io::writev(&*self.file, &pieces) {
            not_taken(errno, &self.log);
        }
    }

    /// Queues a reply to a request until the next [`flush`](Self::flush) at the latest.
    ///
    /// Each system call that replies wakes the application, which may run at once on the caller's
    /// processor; replies written together let it find more than one.
    pub(super) fn gather(&mut self, unique: u64, bytes: &[u8]) {
        let header = answer_header(unique, 0, bytes.len());
        let len = header.len() + bytes.len();
        if len > GATHERED_ANSWER_MAX_BYTES {
            self.answer(unique, bytes);
            return;
        }
        if !self.gathered.has_room(len) {
            self.flush();
        }
        self.gathered.push(&header, bytes);
    }

    /// Writes the queued replies.
    pub(super) fn flush(&mut self) {
        let log = &self.log;
        self.gathered
            .write_to(&self.file, |errno| not_taken(errno, log));
    }
}

/// Handles a reply that the kernel did not accept.
fn not_taken(errno: Errno, log: &LogBudget) {
    // The request has already ended, or the mount has.
    if matches!(errno, Errno::NOENT | Errno::NODEV | Errno::PERM) {
        return;
    }
    if let Some(suppressed) = log.allow() {
        tracing::error!(suppressed, "the kernel rejected a FUSE reply: {errno}");
    }
}
