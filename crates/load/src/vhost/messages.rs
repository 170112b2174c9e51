//! The front end's half of the vhost-user protocol, as far as a disk needs it.

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Codes of requests. `[vhost-user, "Front-end message types"]`
pub mod code {
    #![allow(missing_docs)] // The specification's names say it all.
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// `VHOST_USER_F_PROTOCOL_FEATURES`, among the features of the device.
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// Features of the protocol: several queues, acknowledged requests, the back end's own requests, the
/// configuration space, requests under way in shared memory.
pub mod protocol {
    #![allow(missing_docs)] // Named above.
    pub const MQ: u64 = 1;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
}

/// Bytes of a header: request, flags and size of the payload.
const HEADER_BYTES: usize = 12;

/// Bits of the flags: version 1; the back end acknowledges the request.
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;

/// The most bytes of a payload.
const PAYLOAD_MAX: usize = 4096;

/// The most descriptors of a message.
const FILES_MAX: usize = 8;

/// Time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A connection to a back end.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    /// Requests without an answer of their own are acknowledged.
    acknowledged: bool,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Connection {
    /// Connects to the back end at `path`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(ANSWER_TIME))?;
        Ok(Self {
            socket,
            acknowledged: false,
        })
    }

    /// Has all later requests acknowledged; `REPLY_ACK` was agreed on.
    pub const fn acknowledge(&mut self) {
        self.acknowledged = true;
    }

    /// Returns true if the back end closed the connection.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        // A signal ends the look early, and the caller comes back.
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Sends a request that has no answer, and waits until it is acknowledged.
    ///
    /// # Errors
    /// The kernel's, or `InvalidInput` where the back end refuses.
    pub fn tell(&mut self, code: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let flags = if self.acknowledged { NEED_REPLY } else { 0 };
        self.send(code, flags, payload, files)?;
        if !self.acknowledged {
            return Ok(());
        }
        let (answer, _) = self.receive(code)?;
        if answer.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let message = format!("the back end refuses request {code}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Sends a request and returns the payload of its answer, with a descriptor where it has one.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` where the answer is none.
    pub fn ask(&mut self, code: u32, payload: &[u8]) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        self.send(code, 0, payload, &[])?;
        self.receive(code)
    }

    /// As [`ask`](Self::ask), for an answer of 64 bits.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_number(&mut self, code: u32) -> io::Result<u64> {
        let (answer, _) = self.ask(code, &[])?;
        let number = answer.try_into().map_err(|_| invalid("not 64 bits"))?;
        Ok(u64::from_le_bytes(number))
    }

    fn send(
        &self,
        code: u32,
        flags: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let size = u32::try_from(payload.len()).map_err(|_| invalid("too long"))?;
        let header = [code, VERSION | flags, size];
        let mut message: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        message.extend_from_slice(payload);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(invalid("too many descriptors"));
        }
        let parts = [IoSlice::new(&message)];
        let sent = sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
        // A message is far shorter than the socket's buffer.
        if sent == message.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn receive(&mut self, wanted: u32) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        // With a time-out, work of the thread's ring ends the call early.
        let received = retry_on_intr(|| recvmsg(&self.socket, &mut into, &mut control, flags))?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        if received.bytes != HEADER_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let word = |index: usize| {
            let bytes = header[4 * index..][..4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let size = usize::try_from(word(2)).map_err(|_| invalid("too long"))?;
        if word(0) != wanted || size > PAYLOAD_MAX {
            return Err(invalid("the back end answers something else"));
        }
        let mut payload = vec![0; size];
        self.socket.read_exact(&mut payload)?;
        Ok((payload, file))
    }
}

/// Two numbers of 32 bits, as the state of a queue is told.
#[must_use]
pub fn vring_state(index: u16, number: u32) -> [u8; 8] {
    let mut state = [0; 8];
    state[..4].copy_from_slice(&u32::from(index).to_le_bytes());
    state[4..].copy_from_slice(&number.to_le_bytes());
    state
}
