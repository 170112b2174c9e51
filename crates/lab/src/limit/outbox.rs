//! Outgoing messages: many per system call, with payload sent without a copy.

use std::io::IoSlice;
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::error::RawError;
use super::limits::MESSAGES_PER_SEND_MAX;
use super::message::Message;

/// State of a socket after a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All data was sent; the outbox is empty.
    All,
    /// The socket's buffer is full; the remainder waits.
    Part,
}

/// A set of messages that are sent together, and the number of bytes already sent.
#[derive(Debug)]
pub(super) struct Outbox {
    header_bytes: usize,
    payload_bytes: usize,
    headers: Vec<u8>,
    offsets: Vec<usize>,
    capacity: usize,
    sent_bytes: usize,
}

impl Outbox {
    /// An outbox for up to `capacity` messages; with payload, at most as many as one `sendmsg`
    /// takes.
    pub(super) fn new(header_bytes: usize, payload_bytes: usize, capacity: usize) -> Self {
        let with_payload = payload_bytes > 0;
        let capacity = if with_payload {
            capacity.min(MESSAGES_PER_SEND_MAX)
        } else {
            capacity
        };
        Self {
            header_bytes,
            payload_bytes,
            // The bytes after a header's three words always stay zero.
            headers: vec![0; header_bytes * capacity],
            offsets: Vec::with_capacity(capacity),
            capacity,
            sent_bytes: 0,
        }
    }

    /// Returns the number of messages that can be added; zero while a part of the last set waits.
    pub(super) fn room(&self) -> usize {
        if self.sent_bytes > 0 {
            0
        } else {
            self.capacity - self.offsets.len()
        }
    }

    /// Returns true if nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Adds a message with the payload at `offset` of the region passed to [`Self::send`].
    pub(super) fn push(&mut self, message: Message, offset: usize) {
        assert!(self.room() > 0, "an outbox takes no more than its room");
        let at = self.offsets.len() * self.header_bytes;
        message.encode(&mut self.headers[at..]);
        self.offsets.push(offset);
    }

    /// Sends as much as the socket accepts without blocking. A set that it accepts at once is one
    /// system call.
    pub(super) fn send(&mut self, stream: &TcpStream, region: &[u8]) -> Result<Sent, RawError> {
        let total = self.offsets.len() * (self.header_bytes + self.payload_bytes);
        while self.sent_bytes < total {
            let result = if self.payload_bytes == 0 {
                let headers = &self.headers[self.sent_bytes..total];
                rustix::net::send(stream, headers, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            } else {
                self.send_vectors(stream, region)
            };
            match result {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(Errno::AGAIN) => return Ok(Sent::Part),
                Err(Errno::INTR) => {}
                Err(error) => return Err(RawError::call("sendmsg")(error)),
            }
        }
        self.offsets.clear();
        self.sent_bytes = 0;
        Ok(Sent::All)
    }

    fn send_vectors(&self, stream: &TcpStream, region: &[u8]) -> Result<usize, Errno> {
        let mut vectors = [IoSlice::new(&[]); MESSAGES_PER_SEND_MAX * 2];
        let headers = self.headers.chunks_exact(self.header_bytes);
        for ((pair, header), &offset) in vectors.chunks_exact_mut(2).zip(headers).zip(&self.offsets)
        {
            pair[0] = IoSlice::new(header);
            pair[1] = IoSlice::new(&region[offset..offset + self.payload_bytes]);
        }
        let mut left = &mut vectors[..self.offsets.len() * 2];
        if self.sent_bytes > 0 {
            IoSlice::advance_slices(&mut left, self.sent_bytes);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(stream, left, &mut SendAncillaryBuffer::default(), flags)
    }
}
