//! Little-endian integers at fixed offsets of byte arrays.
//!
//! Callers pass slices whose length they have checked; an index out of bounds is a bug of this
//! crate, never a peer's fault. With constant offsets into arrays the compiler removes the bounds
//! checks.

/// Returns the 16-bit value at `offset`.
#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Returns the 32-bit value at `offset`.
#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(raw)
}

/// Returns the 64-bit value at `offset`.
#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(raw)
}

/// Writes `value` at `offset`.
#[inline(always)]
pub(crate) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
}

/// Writes `value` at `offset`.
#[inline(always)]
pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes `value` at `offset`.
#[inline(always)]
pub(crate) fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// Returns the low 16 bits.
#[inline(always)]
pub(crate) const fn low16(value: u32) -> u16 {
    (value & 0xffff) as u16
}

/// Returns the high 16 bits.
#[inline(always)]
pub(crate) const fn high16(value: u32) -> u16 {
    (value >> 16) as u16
}

/// Returns the byte that starts at bit `shift`, which is at most 24.
#[inline(always)]
pub(crate) const fn byte_of(value: u32, shift: u32) -> u8 {
    ((value >> shift) & 0xff) as u8
}

/// Returns two 16-bit halves as one value.
#[inline(always)]
pub(crate) const fn join16(low: u16, high: u16) -> u32 {
    low as u32 | ((high as u32) << 16)
}
