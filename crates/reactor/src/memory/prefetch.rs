//! Cache hints.
#![allow(unsafe_code)] // The instruction takes an address.

/// Prefetches `value`, which is read soon. Costs almost nothing if it is already cached, and does
/// nothing on processors without a known instruction.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_BYTES: usize = 64;
        let start: *const T = value;
        for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
            // SAFETY: a prefetch reads nothing that the program could see and never faults; every
            // address lies within `value`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    #[test]
    fn changes_nothing() {
        let value = [7_u8; 300];
        super::prefetch(&value);
        assert_eq!(value, [7; 300]);
    }
}
