//! Copies between guest memory and device buffers.

use super::{Segment, Status};
use reactor::IoSlice;
use vm_memory::{Address as _, Bytes as _, GuestMemory};

/// Copies write data from the guest's `segments`, after their first `skip` bytes, into `slices`,
/// whose total length is at most that of the remaining segments. `scratch` is a bounce buffer for
/// memory that cannot be borrowed.
///
/// # Errors [`Status::IoError`] if a segment is outside the guest's memory, or the segments are too
/// short.
pub fn copy_in<M: GuestMemory>(
    memory: &M,
    (segments, skip): (&[Segment], u64),
    slices: &mut [IoSlice],
    scratch: &mut Vec<u8>,
) -> Result<(), Status> {
    let mut cursor = Cursor::new(segments, skip);
    for slice in slices {
        let len = slice.len();
        if let Some(bytes) = slice.bytes_mut() {
            cursor.each(len, |range, segment| {
                memory.read_slice(&mut bytes[range], segment)
            })?;
            continue;
        }
        scratch.resize(len, 0);
        cursor.each(len, |range, segment| {
            memory.read_slice(&mut scratch[range], segment)
        })?;
        slice.copy_in(0, scratch);
    }
    Ok(())
}

/// Copies read data from `slices` into the guest's `segments`, after their first `skip` bytes.
///
/// # Errors
/// As [`copy_in`].
pub fn copy_out<M: GuestMemory>(
    memory: &M,
    (segments, skip): (&[Segment], u64),
    slices: &[IoSlice],
    scratch: &mut Vec<u8>,
) -> Result<(), Status> {
    let mut cursor = Cursor::new(segments, skip);
    for slice in slices {
        let bytes = if let Some(bytes) = slice.bytes() {
            bytes
        } else {
            scratch.clear();
            slice.append_to(0, scratch);
            &*scratch
        };
        cursor.each(bytes.len(), |range, segment| {
            memory.write_slice(&bytes[range], segment)
        })?;
    }
    Ok(())
}

/// A position within segments.
struct Cursor<'a> {
    segments: &'a [Segment],
    /// Bytes of the first segment that are already consumed.
    done: u32,
}

impl<'a> Cursor<'a> {
    fn new(segments: &'a [Segment], skip: u64) -> Self {
        let mut cursor = Self { segments, done: 0 };
        let mut left = skip;
        while left > 0
            && let Some(segment) = cursor.segments.first()
        {
            let len = u64::from(segment.len);
            if left < len {
                cursor.done = u32::try_from(left).expect("less than 32 bits");
                break;
            }
            left -= len;
            cursor.segments = &cursor.segments[1..];
        }
        cursor
    }

    /// Calls `copy` for each contiguous piece of the next `len` bytes, with its range within them
    /// and its address.
    fn each<E>(
        &mut self,
        len: usize,
        mut copy: impl FnMut(std::ops::Range<usize>, vm_memory::GuestAddress) -> Result<(), E>,
    ) -> Result<(), Status> {
        let mut at = 0;
        while at < len {
            let segment = self.segments.first().ok_or(Status::IoError)?;
            let here = (segment.len - self.done).min(u32::try_from(len - at).unwrap_or(u32::MAX));
            let address = segment.address.checked_add(self.done.into());
            let address = address.ok_or(Status::IoError)?;
            let end = at + here as usize;
            copy(at..end, address).map_err(|_| Status::IoError)?;
            at = end;
            self.done += here;
            if self.done == segment.len {
                self.segments = &self.segments[1..];
                self.done = 0;
            }
        }
        Ok(())
    }
}
