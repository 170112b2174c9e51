//! The data of a write on its way from the socket to memory.

use super::protocol::{NbdError, RequestHeader};
use base::Time;
use reactor::IoSlice;
use std::collections::VecDeque;
use switch::Class;

/// The data of a request that is being received.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) header: RequestHeader,
    pub(super) class: Class,
    /// Error of the request, returned once its data has been discarded.
    pub(super) refused: Option<NbdError>,
    /// Start of the wait for the data.
    pub(super) since: Time,
    /// Bytes not yet received.
    pub(super) left: usize,
    /// Filled memory, and memory to be filled.
    pub(super) full: Vec<IoSlice>,
    empty: VecDeque<IoSlice>,
    /// The slice being filled: its remainder, and the offset and length of the whole slice. `None`
    /// while the driver holds it.
    pub(super) current: Option<IoSlice>,
    whole: (usize, usize),
}

impl Payload {
    pub(super) fn new(
        header: RequestHeader,
        class: Class,
        refused: Option<NbdError>,
        data: Vec<IoSlice>,
        since: Time,
    ) -> Self {
        let left = usize::try_from(header.length).expect("a request is bounded");
        let count = data.len();
        let mut payload = Self {
            header,
            class,
            refused,
            since,
            left,
            full: Vec::with_capacity(count),
            empty: data.into(),
            current: None,
            whole: (0, 0),
        };
        payload.next();
        payload
    }

    /// Starts filling the next slice.
    fn next(&mut self) {
        self.current = self.empty.pop_front();
        if let Some(current) = &self.current {
            self.whole = (current.offset(), current.len());
        }
    }

    /// Records that `bytes` bytes at the front of the current slice were filled.
    pub(super) fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.left, "what follows is the next request");
        self.left -= bytes;
        let current = self.current.as_mut().expect("it was just filled");
        current.advance(bytes);
        if current.is_empty()
            && let Some(current) = self.current.take()
        {
            let (offset, len) = self.whole;
            self.full
                .push(IoSlice::new(current.into_memory(), offset, len));
            self.next();
        }
    }

    /// Appends the data that has arrived; zeroes for data that was discarded.
    pub(super) fn append_to(mut self, bytes: &mut Vec<u8>) {
        let length = usize::try_from(self.header.length).expect("a request is bounded");
        let end = bytes.len() + length - self.left;
        if let Some(current) = self.current.take() {
            let (offset, len) = self.whole;
            let filled = len - current.len();
            let filled = IoSlice::new(current.into_memory(), offset, filled);
            self.full.push(filled);
        }
        for slice in &self.full {
            slice.append_to(0, bytes);
        }
        bytes.resize(end, 0);
    }

    /// Consumes data from the front of `bytes`. Returns the number of bytes.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.left > 0 {
            let rest = &bytes[at..];
            let Some(current) = &mut self.current else {
                // The data of a refused request is discarded.
                let len = rest.len().min(self.left);
                self.left -= len;
                at += len;
                continue;
            };
            let len = rest.len().min(current.len());
            current.copy_in(0, &rest[..len]);
            self.filled(len);
            at += len;
        }
        at
    }
}
