//! Replies that are written together: the kernel takes one reply per write, and each write wakes
//! its application.
#![allow(unsafe_code)] // Entries of the ring carry addresses of answers.

use super::limits::{GATHERED_BYTES_MAX, GATHERED_MAX};
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Retry delay while the kernel has no memory for the entries.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);

/// Waiting replies, and a ring that writes them with one system call.
pub(super) struct Gathered {
    ring: IoUring,
    /// The replies, concatenated.
    bytes: Vec<u8>,
    /// The byte range of each reply.
    answers: Vec<Range<usize>>,
}

impl Gathered {
    /// # Errors
    /// The kernel's error on creating the ring.
    pub(super) fn new() -> io::Result<Self> {
        let entries = u32::try_from(GATHERED_MAX).expect("few");
        Ok(Self {
            ring: IoUring::new(entries)?,
            bytes: Vec::with_capacity(GATHERED_BYTES_MAX),
            answers: Vec::with_capacity(GATHERED_MAX),
        })
    }

    /// Returns true if a reply of `len` bytes fits in addition to the waiting ones.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.answers.len() < GATHERED_MAX && self.bytes.len() + len <= GATHERED_BYTES_MAX
    }

    /// Adds a reply; check [`has_room`](Self::has_room) first.
    pub(super) fn push(&mut self, header: &[u8], body: &[u8]) {
        debug_assert!(self.has_room(header.len() + body.len()), "asked before");
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(body);
        self.answers.push(begin..self.bytes.len());
    }

    /// Writes each reply to the file separately; calls `refused` with the error of each reply that
    /// the kernel does not accept.
    pub(super) fn write_to(&mut self, file: &File, refused: impl FnMut(Errno)) {
        if let [only] = &self.answers[..] {
            rustix::io::write(file, &self.bytes[only.clone()]).map_or_else(refused, drop);
        } else {
            self.write_together(file, refused);
        }
        self.answers.clear();
        self.bytes.clear();
    }

    /// Writes the replies through the ring; returns when the kernel has completed all of them. A
    /// reply whose entry failed is written without the ring, because its application would
    /// otherwise wait for ever.
    fn write_together(&mut self, file: &File, mut refused: impl FnMut(Errno)) {
        let descriptor = types::Fd(file.as_raw_fd());
        for (answer, name) in self.answers.iter().zip(0..) {
            let bytes = &self.bytes[answer.clone()];
            let len = u32::try_from(bytes.len()).expect("an answer is bounded");
            // FUSE takes no registered memory (`WriteFixed`).
            let entry = opcode::Write::new(descriptor, bytes.as_ptr(), len).build();
            // SAFETY: the bytes stay as they are until this function returns, and it waits for the
            // completion of every entry.
            let pushed = unsafe { self.ring.submission().push(&entry.user_data(name)) };
            pushed.expect("the ring has room for as many as may wait");
        }
        let mut left = self.answers.len();
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN | Errno::BUSY) => std::thread::sleep(SHORTAGE_PAUSE),
                    _ => {
                        tracing::error!("io_uring for FUSE replies failed: {error}");
                        // The kernel may still read the replies.
                        std::process::abort();
                    }
                },
            }
            for completion in self.ring.completion() {
                left -= 1;
                if completion.result() < 0 {
                    let name = usize::try_from(completion.user_data()).expect("an index");
                    let bytes = &self.bytes[self.answers[name].clone()];
                    rustix::io::write(file, bytes).map_or_else(&mut refused, drop);
                }
            }
        }
    }
}

impl std::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut gathered = f.debug_struct("Gathered");
        gathered
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use std::os::fd::OwnedFd;

    /// A file that accepts messages, and its other end.
    fn pair() -> (File, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.expect("sockets");
        (File::from(ours), theirs)
    }

    /// Returns the next message, or `None`.
    fn next(theirs: &OwnedFd) -> Option<Vec<u8>> {
        let mut room = vec![0; GATHERED_BYTES_MAX];
        match recv(theirs, &mut room[..], RecvFlags::empty()) {
            Ok((len, _)) => Some(room[..len].to_vec()),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                None
            }
        }
    }

    #[test]
    fn each_answer_is_a_message_and_all_leave_when_they_are_written() {
        let (file, theirs) = pair();
        let mut gathered = Gathered::new().expect("a ring");
        for count in [0, 1, 2, 7, 1] {
            for answer in 0..count {
                gathered.push(&[answer], &vec![9; usize::from(answer) * 1000]);
            }
            assert_eq!(next(&theirs), None);
            gathered.write_to(&file, |errno| panic!("{errno}"));
            for answer in 0..count {
                let wanted = [vec![answer], vec![9; usize::from(answer) * 1000]].concat();
                assert_eq!(next(&theirs), Some(wanted));
            }
            assert_eq!(next(&theirs), None);
        }
    }

    #[test]
    fn room_ends_with_the_number_and_with_the_bytes() {
        let mut gathered = Gathered::new().expect("a ring");
        assert!(gathered.has_room(GATHERED_BYTES_MAX));
        assert!(!gathered.has_room(GATHERED_BYTES_MAX + 1));
        gathered.push(&[1; 16], &[]);
        assert!(gathered.has_room(GATHERED_BYTES_MAX - 16));
        assert!(!gathered.has_room(GATHERED_BYTES_MAX - 15));
        for _ in 1..GATHERED_MAX {
            assert!(gathered.has_room(16));
            gathered.push(&[1; 16], &[]);
        }
        assert!(!gathered.has_room(0));
    }

    #[test]
    fn every_answer_that_is_not_taken_is_told() {
        let (file, theirs) = pair();
        let mut gathered = Gathered::new().expect("a ring");
        drop(theirs);
        for count in [1, 3] {
            let mut told = Vec::new();
            for _ in 0..count {
                gathered.push(&[1], &[]);
            }
            gathered.write_to(&file, |errno| told.push(errno));
            assert_eq!(told, vec![Errno::PIPE; count]);
        }
    }
}
