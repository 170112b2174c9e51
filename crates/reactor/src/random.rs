//! Random bytes of the kernel.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills the slice with random bytes that are fit for keys.
///
/// # Panics
/// If the kernel has no random bytes, which no supported kernel lacks.
pub fn fill_random(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(Errno::INTR) => {}
            Err(error) => panic!("getrandom: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_filled() {
        let mut bytes = [0; 1024];
        fill_random(&mut bytes);
        assert!(bytes.chunks(16).all(|part| part != [0; 16]));
    }
}
