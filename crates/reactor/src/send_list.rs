//! The content of one `sendmsg`: headers encoded into the list, and payload by reference.
//!
//! A connection fills a send list, the driver owns it while it is being sent, and returns it when
//! the kernel has accepted every byte. Clearing it then frees the payload memory. Nothing is
//! allocated after construction.

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
    /// Payload, by reference.
    Payload(IoSlice),
}

/// A scatter list with its own header space.
#[derive(Debug)]
pub struct SendList {
    headers: Vec<u8>,
    segments: Vec<Segment>,
    bytes: usize,
    aside: Aside,
}

/// The rest of a block of device memory whose beginning has been sent.
#[derive(Debug, Default)]
struct Aside {
    /// Offset in the list, in bytes.
    start: usize,
    bytes: Vec<u8>,
}

/// The largest logical block: the unit that a reader must see consistently.
const BLOCK_BYTES: usize = 4096;

impl SendList {
    /// Creates an empty list with room for `header_bytes` of headers and `segments` ranges.
    #[must_use]
    pub fn with_capacity(header_bytes: usize, segments: usize) -> Self {
        Self {
            headers: Vec::with_capacity(header_bytes),
            segments: Vec::with_capacity(segments.min(SEND_SEGMENTS_MAX)),
            bytes: 0,
            aside: Aside::default(),
        }
    }

    /// Creates a list of the default size ([`SEND_HEADER_BYTES`], [`SEND_SEGMENTS_MAX`]).
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

    /// Appends header bytes; bytes directly after other header bytes share their range.
    ///
    /// # Panics If they do not fit: check [`fits`](Self::fits) first.
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

    /// Appends payload by reference; an empty range is dropped.
    ///
    /// # Panics If no range is left: check [`fits`](Self::fits) first.
    pub fn push_payload(&mut self, payload: IoSlice) {
        if payload.is_empty() {
            return;
        }
        assert!(self.fits(0, 1), "the caller asked whether the range fits");
        self.bytes += payload.len();
        self.segments.push(Segment::Payload(payload));
    }

    /// Total bytes of the list.
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

    /// The header space to which [`Segment::Header`] refers.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        &self.headers
    }

    /// Clears the list and frees its payload memory.
    pub fn clear(&mut self) {
        self.headers.clear();
        self.segments.clear();
        self.bytes = 0;
        self.aside.bytes.clear();
    }

    /// Records that sending stopped after `sent` bytes. If that is within a block of device memory,
    /// copies the rest of the block, so that it is consistent with the part already sent.
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

    /// Returns the copied bytes at `position`; empty if there are none.
    pub(crate) fn aside(&self, position: usize) -> &[u8] {
        if self.covers(position) {
            &self.aside.bytes[position - self.aside.start..]
        } else {
            &[]
        }
    }

    /// Copies the bytes at `position` to `out`, as many as fit, and advances it. Returns their
    /// number; 0 at the end of the list.
    pub(crate) fn gather(&self, position: &mut ListPosition, out: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < out.len()
            && let Some(segment) = self.segments.get(position.segment)
        {
            let from = position.within;
            let len = match segment {
                Segment::Header { len, .. } => *len,
                Segment::Payload(slice) => slice.len(),
            };
            let taken = (len - from).min(out.len() - copied);
            let to = &mut out[copied..copied + taken];
            match segment {
                Segment::Header { start, .. } => {
                    to.copy_from_slice(&self.headers[start + from..][..taken]);
                }
                Segment::Payload(slice) => {
                    slice.copy_out(from, to);
                    let aside = self.aside(position.total);
                    let aside = &aside[..aside.len().min(taken)];
                    to[..aside.len()].copy_from_slice(aside);
                }
            }
            copied += taken;
            position.total += taken;
            position.within += taken;
            if position.within == len {
                (position.segment, position.within) = (position.segment + 1, 0);
            }
        }
        copied
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

/// A place in a list, to continue copying.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPosition {
    segment: usize,
    /// Offset in the segment, in bytes.
    within: usize,
    /// Offset in the list, in bytes.
    total: usize,
}

impl ListPosition {
    /// Returns the offset in the list, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.total
    }
}

/// The unused send lists of one core. Cloning gives another handle on the same pool.
///
/// The list returned last is taken first, so that a core with many connections fills and sends
/// lists in memory that is still cached.
#[derive(Clone, Debug, Default)]
pub struct SendListPool {
    #[expect(
        clippy::vec_box,
        reason = "operations own their list by the box, which is kept"
    )]
    spare: Rc<RefCell<Vec<Box<SendList>>>>,
}

impl SendListPool {
    /// Returns an empty list, newly allocated if the pool is empty: the caller bounds the number in
    /// use.
    #[inline]
    #[must_use]
    pub fn take(&self) -> Box<SendList> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::new(SendList::new()))
    }

    /// Returns a list to the pool, with or without content.
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
