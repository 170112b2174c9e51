//! Messages with files over a Unix socket.
//!
//! A frame is a header (lengths of text and bytes, number of files), the text (a message in JSON), the
//! bytes, and then the files, each batch with one byte.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred, sockopt,
};
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zeroize::Zeroizing;

/// Files per batch; the kernel allows 253.
const BATCH: usize = 128;

/// Longest text, and most bytes, of a frame: far more than a target with all its limits needs.
const FRAME_MAX: u64 = 1 << 30;

/// Most files of a frame.
const FILES_MAX: u64 = 1 << 20;

/// A connection to the other process.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    peer: Pid,
}

/// A received frame.
#[derive(Debug)]
pub(super) struct Frame<M> {
    pub(super) message: M,
    pub(super) bytes: Zeroizing<Vec<u8>>,
    pub(super) files: Vec<OwnedFd>,
}

impl Channel {
    /// Checks that the process at the other end is of the same user, or of root.
    ///
    /// # Errors
    /// It is of another user.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let UCred { pid: peer, uid, .. } = sockopt::socket_peercred(&stream)?;
        if uid != rustix::process::geteuid() && !uid.is_root() {
            let text = format!("it runs as user {}; use the same user", uid.as_raw());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Self { stream, peer })
    }

    /// Returns the ID of the process at the other end, as this one sees it.
    pub(super) const fn peer(&self) -> Pid {
        self.peer
    }

    /// Sets the time for which a send or a receive may make no progress.
    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))
    }

    /// Sends a message alone.
    pub(super) fn tell(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send(message, &[], &[])
    }

    /// Sends a message with bytes and files.
    pub(super) fn send(
        &mut self,
        message: &impl Serialize,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let text = Zeroizing::new(serde_json::to_vec(message)?);
        for number in [text.len(), bytes.len(), files.len()] {
            self.stream.write_all(&(number as u64).to_le_bytes())?;
        }
        self.stream.write_all(&text)?;
        self.stream.write_all(bytes)?;
        for batch in files.chunks(BATCH) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(batch));
            let one = [IoSlice::new(&[0])];
            rustix::net::sendmsg(&self.stream, &one, &mut control, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Receives a message; `None` if the other process has closed the connection.
    pub(super) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Option<Frame<M>>> {
        let mut header = [[0; 8]; 3];
        match self.stream.read_exact(header.as_flattened_mut()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [text, bytes, count] = header.map(u64::from_le_bytes);
        if text.max(bytes) > FRAME_MAX || count > FILES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it speaks another language",
            ));
        }
        let text = self.read(text)?;
        let message = serde_json::from_slice(&text)?;
        let bytes = self.read(bytes)?;
        let mut files = Vec::new();
        while (files.len() as u64) < count {
            self.receive_files(&mut files)?;
        }
        Ok(Some(Frame {
            message,
            bytes,
            files,
        }))
    }

    /// Reads bytes, which may be secrets: memory that grows would leave copies behind. The kernel gives
    /// the memory as bytes arrive.
    fn read(&mut self, length: u64) -> io::Result<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(Vec::new());
        let capacity = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.try_reserve_exact(capacity)?;
        let read = (&mut self.stream).take(length).read_to_end(&mut bytes)? as u64;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    fn receive_files(&self, files: &mut Vec<OwnedFd>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut one = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut one)];
        let received = rustix::net::recvmsg(self.stream.as_fd(), &mut into, &mut control, flags)?;
        let before = files.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(given) = message {
                files.extend(given);
            }
        }
        if received.bytes == 0 || files.len() == before {
            let text = "files are missing; raise the limit of open files (ulimit -n)";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn messages_arrive_with_their_bytes_and_files_in_order() {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let mut theirs = Channel::new(theirs).expect("the same user");
        let count = 2 * BATCH + 3;
        let sender = std::thread::spawn(move || {
            let mut ours = Channel::new(ours).expect("the same user");
            let file = File::open("/dev/null").expect("a file");
            let other = File::open("/dev/zero").expect("a file");
            let mut files = vec![file.as_fd(); count];
            files[BATCH] = other.as_fd();
            ours.send(&Message::<()>::State, &[7; 100_000], &files)
                .expect("room");
            ours.tell(&Message::<()>::Taken).expect("room");
        });
        let frame = theirs.receive::<Message<()>>();
        let frame = frame.expect("a frame").expect("open");
        assert!(matches!(frame.message, Message::State));
        assert_eq!(*frame.bytes, [7; 100_000]);
        assert_eq!(frame.files.len(), count);
        let device = |fd: &OwnedFd| {
            let file = File::from(fd.try_clone().expect("a descriptor"));
            file.metadata().expect("it is open").rdev()
        };
        assert_ne!(device(&frame.files[BATCH]), device(&frame.files[0]));
        assert_eq!(device(&frame.files[count - 1]), device(&frame.files[0]));
        let frame = theirs.receive::<Message<()>>();
        let frame = frame.expect("a frame").expect("open");
        assert!(matches!(frame.message, Message::Taken) && frame.files.is_empty());
        sender.join().expect("no panic");
        let end = theirs.receive::<Message<()>>();
        assert!(end.expect("the end").is_none());
    }

    #[test]
    fn a_stranger_is_refused_before_memory_is_taken() {
        let (mut ours, theirs) = UnixStream::pair().expect("two sockets");
        let mut theirs = Channel::new(theirs).expect("the same user");
        ours.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("room");
        let error = theirs.receive::<Message<()>>().expect_err("no frame");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
