//! A blocking call: split into requests that use the caller's memory.

use super::range;
use crate::error::RequestError;
use crate::namespace::RemoteNamespace;
use base::units::Lba;
use block::{Device as _, Operation};
use std::io::{IoSlice, IoSliceMut};

/// A call, split into pieces of at most one request each.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) operation: Operation,
    offset: u64,
    length: u64,
    /// Size of each piece but the last, in bytes.
    pub(super) step: u64,
    pub(super) pieces: usize,
    block_bytes: u64,
}

impl Call {
    /// Checks a call. `None` if there is nothing to do.
    ///
    /// # Errors
    /// As [`range::check`].
    pub(super) fn new(
        namespace: &RemoteNamespace,
        operation: Operation,
        offset: u64,
        length: u64,
    ) -> Result<Option<Self>, RequestError> {
        let geometry = namespace.geometry();
        range::check(geometry, offset, length)?;
        if length == 0 && operation != Operation::Flush {
            return Ok(None);
        }
        let step = if operation.has_data() {
            range::max_request_bytes(namespace)
        } else {
            range::without_data_max(geometry)
        };
        let pieces = usize::try_from(length.div_ceil(step)).expect("a length in memory");
        Ok(Some(Self {
            operation,
            offset,
            length,
            step,
            pieces: pieces.max(1),
            block_bytes: geometry.block_bytes.into(),
        }))
    }

    /// Returns the offset of a piece in the caller's memory and its length, in bytes.
    pub(super) fn range(&self, piece: usize) -> (u64, u64) {
        let at = piece as u64 * self.step;
        (at, self.step.min(self.length - at))
    }

    /// Returns the first block of a piece and its number of blocks.
    pub(super) fn blocks(&self, piece: usize) -> (Lba, u32) {
        let (at, size) = self.range(piece);
        let blocks = u32::try_from(size / self.block_bytes);
        let first = Lba((self.offset + at) / self.block_bytes);
        (first, blocks.expect("a step has fewer than 2^32 blocks"))
    }
}

/// The caller's memory.
pub(super) enum Data<'a, 'b> {
    None,
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    Scatter(&'a mut [IoSliceMut<'b>]),
    Gather(&'a [IoSlice<'b>]),
}

impl Data<'_, '_> {
    /// Returns the memory that the host's thread gets for a piece: a copy of the data to write, or
    /// an empty buffer for a read.
    pub(super) fn piece(&self, at: u64, size: u64) -> Vec<u8> {
        if matches!(self, Self::Read(_) | Self::Scatter(_)) {
            return vec![0; in_memory(size)];
        }
        let mut piece = Vec::with_capacity(in_memory(size));
        self.each_given(at, size, |_, bytes| piece.extend_from_slice(bytes));
        piece
    }

    /// Copies the data to write of a piece into `slice`, which has the length of the piece.
    pub(super) fn fill(&self, at: u64, slice: &mut reactor::IoSlice) {
        let size = slice.len() as u64;
        self.each_given(at, size, |offset, bytes| slice.copy_in(offset, bytes));
    }

    /// Copies the data that a piece read into the caller's memory.
    pub(super) fn take(&mut self, at: u64, bytes: &[u8]) {
        self.each_room(at, bytes.len() as u64, |offset, room| {
            room.copy_from_slice(&bytes[offset..][..room.len()]);
        });
    }

    /// The same from a request's memory.
    pub(super) fn take_slice(&mut self, at: u64, slice: &reactor::IoSlice) {
        self.each_room(at, slice.len() as u64, |offset, room| {
            slice.copy_out(offset, room);
        });
    }

    /// Calls `f` for each run of bytes that the piece of `size` bytes at `at` writes, with the
    /// offset of the run in the piece.
    fn each_given(&self, at: u64, size: u64, mut f: impl FnMut(usize, &[u8])) {
        let (at, size) = (in_memory(at), in_memory(size));
        match self {
            Self::Write(data) => f(0, &data[at..at + size]),
            Self::Gather(parts) => {
                let mut runs = Runs::new(at, size);
                for part in *parts {
                    let (range, offset) = runs.next(part.len());
                    f(offset, &part[range]);
                }
            }
            Self::None | Self::Read(_) | Self::Scatter(_) => {}
        }
    }

    /// The same for bytes that the piece reads.
    fn each_room(&mut self, at: u64, size: u64, mut f: impl FnMut(usize, &mut [u8])) {
        let (at, size) = (in_memory(at), in_memory(size));
        match self {
            Self::Read(data) => f(0, &mut data[at..at + size]),
            Self::Scatter(parts) => {
                let mut runs = Runs::new(at, size);
                for part in parts.iter_mut() {
                    let (range, offset) = runs.next(part.len());
                    f(offset, &mut part[range]);
                }
            }
            Self::None | Self::Write(_) | Self::Gather(_) => {}
        }
    }
}

fn in_memory(value: u64) -> usize {
    usize::try_from(value).expect("an offset in memory")
}

/// Finds the parts of a vector that overlap with a piece.
struct Runs {
    /// Bytes left to skip before the piece.
    skip: usize,
    /// Bytes of the piece that were found, and its total size.
    found: usize,
    size: usize,
}

impl Runs {
    fn new(at: usize, size: usize) -> Self {
        Self {
            skip: at,
            found: 0,
            size,
        }
    }

    /// Returns the range of the next part, of `length` bytes, that belongs to the piece, and its
    /// offset in the piece.
    fn next(&mut self, length: usize) -> (std::ops::Range<usize>, usize) {
        let from = self.skip.min(length);
        self.skip -= from;
        let here = (length - from).min(self.size - self.found);
        let offset = self.found;
        self.found += here;
        (from..from + here, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_vectors_are_found_in_their_parts() {
        let content: Vec<u8> = (0..100).collect();
        for cuts in [vec![0, 100], vec![0, 1, 1, 40, 99, 100], vec![0, 50, 100]] {
            let parts: Vec<IoSlice<'_>> = cuts
                .windows(2)
                .map(|cut| IoSlice::new(&content[cut[0]..cut[1]]))
                .collect();
            let mut room = [0; 100];
            for (at, size) in [(0, 30), (30, 30), (60, 30), (90, 10)] {
                let piece = Data::Gather(&parts).piece(at, size);
                assert_eq!(piece, content[in_memory(at)..][..in_memory(size)]);
                let mut rest = &mut room[..];
                let mut rooms = Vec::new();
                for cut in cuts.windows(2) {
                    let (part, more) = rest.split_at_mut(cut[1] - cut[0]);
                    rooms.push(IoSliceMut::new(part));
                    rest = more;
                }
                let mut data = Data::Scatter(&mut rooms);
                assert_eq!(data.piece(at, size), vec![0; in_memory(size)]);
                data.take(at, &piece);
            }
            assert_eq!(room[..], content);
        }
    }
}
