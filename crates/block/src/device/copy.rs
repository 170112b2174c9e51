//! Copies between a request's data and a device's memory.
//!
//! Data is usually in a buffer, which is copied at once. If it is in a region too, whose bytes
//! other threads may change meanwhile, the copy goes through a buffer on the stack.

use reactor::{IoSlice, RegionHandle};

/// Size of that buffer in bytes.
const COPY_BYTES: usize = 4096;

/// Calls `visit` with the offset and the buffer of each piece of `len` bytes. Ends early and
/// returns false if `visit` does.
fn each_piece(len: usize, mut visit: impl FnMut(usize, &mut [u8]) -> bool) -> bool {
    let mut piece = [0; COPY_BYTES];
    let mut starts = (0..len).step_by(COPY_BYTES);
    starts.all(|at| visit(at, &mut piece[..COPY_BYTES.min(len - at)]))
}

pub(crate) fn copy_to_region(
    data: &IoSlice,
    from: usize,
    region: &RegionHandle,
    at: usize,
    len: usize,
) {
    if let Some(bytes) = data.bytes() {
        region.copy_in(at, &bytes[from..from + len]);
        return;
    }
    each_piece(len, |i, piece| {
        data.copy_out(from + i, piece);
        region.copy_in(at + i, piece);
        true
    });
}

pub(crate) fn copy_from_region(
    region: &RegionHandle,
    at: usize,
    data: &mut IoSlice,
    to: usize,
    len: usize,
) {
    if let Some(bytes) = data.bytes_mut() {
        region.copy_out(at, &mut bytes[to..to + len]);
        return;
    }
    each_piece(len, |i, piece| {
        region.copy_out(at + i, piece);
        data.copy_in(to + i, piece);
        true
    });
}

pub(crate) fn equals_region(
    data: &IoSlice,
    from: usize,
    region: &RegionHandle,
    at: usize,
    len: usize,
) -> bool {
    if let Some(bytes) = data.bytes() {
        return region.equals(at, &bytes[from..from + len]);
    }
    each_piece(len, |i, piece| {
        data.copy_out(from + i, piece);
        region.equals(at + i, piece)
    })
}
