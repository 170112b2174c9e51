//! The content of one `sendmsg`: headers that were encoded here, and payload where it lies.
//!
//! A send list is filled by a connection, owned by the driver while it is being sent, and handed
//! back when every byte of it is with the kernel; then it is cleared, and the memory of its payload
//! goes back to where it came from. Nothing in it is allocated after construction.

use crate::limits::{SEND_HEADER_BYTES, SEND_SEGMENTS_MAX};
use crate::memory::{IoSlice, Memory};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// One range of a [`SendList`].
#[derive(Debug)]
pub enum Segment {
    /// Bytes of the list's own header space.
    Header {
        /// Start, in bytes.
        start: usize,
        /// Length, in bytes.
        len: usize,
    },
    /// Payload, where it lies.
    Payload(IoSlice),
}

/// A scatter list with its own space for headers.
#[derive(Debug)]
pub struct SendList {
    headers: Vec<u8>,
    segments: Vec<Segment>,
    bytes: usize,
    aside: Aside,
}

/// The end of a block of device memory; its beginning has been sent already.
#[derive(Debug, Default)]
struct Aside {
    /// Start among the bytes of the list.
    start: usize,
    bytes: Vec<u8>,
}

/// The largest logical block: what a reader must see whole.
const BLOCK_BYTES: usize = 4096;

impl SendList {
    /// An empty list with room for `header_bytes` of headers and `segments` ranges.
    #[must_use]
    pub fn with_capacity(header_bytes: usize, segments: usize) -> Self {
        Self {
            headers: Vec::with_capacity(header_bytes),
            segments: Vec::with_capacity(segments.min(SEND_SEGMENTS_MAX)),
            bytes: 0,
            aside: Aside::default(),
        }
    }

    /// A list of the usual size ([`SEND_HEADER_BYTES`], [`SEND_SEGMENTS_MAX`]).
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(SEND_HEADER_BYTES, SEND_SEGMENTS_MAX)
    }

    /// Returns true if another header of up to `header_bytes` and `ranges` more ranges fit.
    #[must_use]
    pub fn fits(&self, header_bytes: usize, ranges: usize) -> bool {
        self.headers.len() + header_bytes <= self.headers.capacity()
            && self.segments.len() + ranges <= self.segments.capacity()
    }

    /// Appends header bytes; bytes that follow other header bytes share their range.
    ///
    /// # Panics
    /// If they do not fit: ask [`fits`](Self::fits) first.
    pub fn push_header(&mut self, bytes: &[u8]) {
        assert!(
            self.fits(bytes.len(), 1),
            "the caller asked whether the header fits"
        );
        let start = self.headers.len();
        self.headers.extend_from_slice(bytes);
        self.bytes += bytes.len();
        if let Some(Segment::Header { len, .. }) = self.segments.last_mut() {
            *len += bytes.len();
        } else {
            self.segments.push(Segment::Header {
                start,
                len: bytes.len(),
            });
        }
    }

    /// Appends payload, where it lies; an empty range is dropped.
    ///
    /// # Panics
    /// If no range is left: ask [`fits`](Self::fits) first.
    pub fn push_payload(&mut self, payload: IoSlice) {
        if payload.is_empty() {
            return;
        }
        assert!(self.fits(0, 1), "the caller asked whether the range fits");
        self.bytes += payload.len();
        self.segments.push(Segment::Payload(payload));
    }

    /// Bytes in the list.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if there is nothing to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The ranges, in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The header space that [`Segment::Header`] refers to.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        &self.headers
    }

    /// Forgets everything; payload memory goes back to where it came from.
    pub fn clear(&mut self) {
        self.headers.clear();
        self.segments.clear();
        self.bytes = 0;
        self.aside.bytes.clear();
    }

    /// Sending stopped after `sent` bytes. If that is within a block of device memory, the rest of
    /// the block is copied, so that it is of one age with what was sent of it.
    pub fn set_aside(&mut self, sent: usize) {
        let mut start = 0;
        for segment in &self.segments {
            let Segment::Payload(slice) = segment else {
                let Segment::Header { len, .. } = segment else {
                    continue;
                };
                start += len;
                continue;
            };
            if start + slice.len() <= sent {
                start += slice.len();
                continue;
            }
            if start < sent && matches!(slice.memory(), Memory::Region(_)) && !self.covers(sent) {
                let at = sent - start;
                let block_end = (slice.offset() + at).next_multiple_of(BLOCK_BYTES);
                let end = (block_end - slice.offset()).min(slice.len());
                self.aside.start = sent;
                self.aside.bytes.resize(end - at, 0);
                slice.copy_out(at, &mut self.aside.bytes);
            }
            return;
        }
    }

    fn covers(&self, position: usize) -> bool {
        let Aside { start, bytes } = &self.aside;
        (*start..start + bytes.len()).contains(&position)
    }

    /// The bytes from `position` on that were set aside; empty where none were.
    pub(crate) fn aside(&self, position: usize) -> &[u8] {
        if self.covers(position) {
            &self.aside.bytes[position - self.aside.start..]
        } else {
            &[]
        }
    }

    /// Appends a range of the bytes to `out`: for drivers without a kernel, and for tests.
    pub fn append_to(&self, range: Range<usize>, out: &mut Vec<u8>) {
        let (begin, mut start) = (out.len(), 0);
        for segment in &self.segments {
            let len = match segment {
                Segment::Header { len, .. } => *len,
                Segment::Payload(slice) => slice.len(),
            };
            let within = |at: usize| at.clamp(start, start + len) - start;
            let (from, to) = (within(range.start), within(range.end));
            start += len;
            match segment {
                Segment::Header { start, .. } => {
                    out.extend_from_slice(&self.headers[start + from..start + to]);
                }
                Segment::Payload(slice) => match slice.bytes() {
                    Some(bytes) => out.extend_from_slice(&bytes[from..to]),
                    None => {
                        let end = out.len();
                        out.resize(end + to - from, 0);
                        slice.copy_out(from, &mut out[end..]);
                    }
                },
            }
        }
        let aside = self.aside(range.start);
        let aside = &aside[..aside.len().min(range.len())];
        out[begin..begin + aside.len()].copy_from_slice(aside);
    }
}

/// The send lists of one core that are not in use. Cloning gives another handle on the same pool.
///
/// The list that came back last is given out first. A core with many connections so fills and sends
/// one list after the other from memory that the cache still has.
#[derive(Clone, Debug, Default)]
pub struct SendListPool {
    #[expect(
        clippy::vec_box,
        reason = "operations own their list by the box, which is kept"
    )]
    spare: Rc<RefCell<Vec<Box<SendList>>>>,
}

impl SendListPool {
    /// Returns an empty list, a new one where none is spare: its caller bounds how many are in use.
    #[inline]
    #[must_use]
    pub fn take(&self) -> Box<SendList> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::new(SendList::new()))
    }

    /// Takes a list back, with or without content.
    #[inline]
    pub fn give_back(&self, mut list: Box<SendList>) {
        list.clear();
        self.spare.borrow_mut().push(list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Region};

    #[test]
    fn neighbouring_headers_share_a_range_and_order_is_kept() {
        let region = Region::new(4096).expect("a page").handle();
        region.copy_in(8, b"payload");
        let mut list = SendList::with_capacity(64, 4);
        list.push_header(b"one ");
        list.push_header(b"two ");
        list.push_payload(IoSlice::new(Memory::Region(region), 8, 7));
        list.push_header(b" three");
        assert_eq!(list.segments().len(), 3);
        let bytes = |range| {
            let mut out = b"> ".to_vec();
            list.append_to(range, &mut out);
            out
        };
        assert_eq!(bytes(0..21), b"> one two payload three");
        assert_eq!(bytes(4..21), b"> two payload three");
        assert_eq!(bytes(6..18), b"> o payload th");
        assert_eq!(list.bytes(), 21);
        assert!(!list.fits(64, 0));
        assert!(!list.fits(0, 2));
        list.clear();
        assert!(list.is_empty() && list.fits(64, 4));
    }

    #[test]
    fn the_list_that_came_back_last_is_given_out_first_and_is_empty() {
        let pool = SendListPool::default();
        let (first, mut second) = (pool.take(), pool.take());
        second.push_header(b"sent");
        let address = std::ptr::from_ref(&*second);
        pool.give_back(first);
        pool.give_back(second);
        let again = pool.clone().take();
        assert!(std::ptr::eq(&*again, address) && again.is_empty());
    }
}
