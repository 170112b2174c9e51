//! AES-256-XTS by aws-lc, whose safe interface has no XTS. `[IEEE 1619-2018]`
#![allow(unsafe_code)] // Calls of a C library.

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_Cipher, EVP_CipherInit_ex,
    EVP_aes_256_xts,
};
use std::fmt;
use std::ptr::{self, NonNull};

/// Bytes of a key: one for the data, one for the tweaks.
pub(super) const KEY_BYTES: usize = 64;

/// Bytes of the smallest data unit.
const UNIT_BYTES_MIN: usize = 16;

/// Encrypts and decrypts data units in one thread. The library clears its copies of the key when
/// this value is dropped.
pub(super) struct Xts {
    encrypt: Cipher,
    decrypt: Cipher,
}

impl Xts {
    /// Returns the cipher of a key; `None` if the halves of the key are equal, or without memory.
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Option<Self> {
        Some(Self {
            encrypt: Cipher::new(key, true)?,
            decrypt: Cipher::new(key, false)?,
        })
    }

    /// Encrypts the data unit with number `unit`.
    ///
    /// # Panics
    /// If the lengths differ or are below 16 bytes.
    pub(super) fn encrypt(&mut self, unit: u64, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "a data unit keeps its length");
        self.encrypt.run(unit, Some(from), to);
    }

    /// Encrypts the data unit with number `unit` in place.
    ///
    /// # Panics
    /// If it is shorter than 16 bytes.
    pub(super) fn encrypt_in_place(&mut self, unit: u64, data: &mut [u8]) {
        self.encrypt.run(unit, None, data);
    }

    /// Decrypts the data unit with number `unit` in place.
    ///
    /// # Panics
    /// If it is shorter than 16 bytes.
    pub(super) fn decrypt(&mut self, unit: u64, data: &mut [u8]) {
        self.decrypt.run(unit, None, data);
    }
}

impl fmt::Debug for Xts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xts").finish_non_exhaustive()
    }
}

/// A context of the library for one direction.
struct Cipher(NonNull<EVP_CIPHER_CTX>);

impl Cipher {
    fn new(key: &[u8; KEY_BYTES], encrypts: bool) -> Option<Self> {
        // SAFETY: the call has no preconditions.
        let context = Self(NonNull::new(unsafe { EVP_CIPHER_CTX_new() })?);
        // SAFETY: the call has no preconditions.
        let cipher = unsafe { EVP_aes_256_xts() };
        // SAFETY: the context is valid; the library copies the key, which has the 64 bytes of this
        // cipher; the tweak comes later.
        let ready = unsafe {
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                cipher,
                ptr::null_mut(),
                key.as_ptr(),
                ptr::null(),
                i32::from(encrypts),
            )
        };
        (ready == 1).then_some(context)
    }

    /// Processes one data unit from `from`, or in place.
    fn run(&mut self, unit: u64, from: Option<&[u8]>, to: &mut [u8]) {
        assert!(to.len() >= UNIT_BYTES_MIN, "a data unit has 16 bytes");
        let context = self.0.as_ptr();
        let tweak = u128::from(unit).to_le_bytes();
        // SAFETY: the context is valid and has its cipher and key; the library copies the 16 bytes
        // of the tweak.
        let ready = unsafe {
            EVP_CipherInit_ex(
                context,
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                tweak.as_ptr(),
                -1,
            )
        };
        let len = to.len();
        let out = to.as_mut_ptr();
        let input = from.map_or(out.cast_const(), <[u8]>::as_ptr);
        // SAFETY: the context is ready; input and output have `len` bytes, and are the same memory
        // or do not overlap.
        let done = unsafe { EVP_Cipher(context, out, input, len) };
        // A data unit of at least 16 bytes and at most 16 MiB cannot fail.
        assert_eq!((ready, done), (1, 1), "AES-256-XTS of {len} bytes");
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // SAFETY: the context came from `EVP_CIPHER_CTX_new` and is freed once.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let digits = hex.as_bytes();
        assert_eq!(digits.len(), 2 * N);
        std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
    }

    /// Vectors 10 and 11 of IEEE 1619-2018, annex B: the first 32 and the last 16 bytes.
    #[test]
    fn the_vectors_of_the_standard_come_out() {
        let key = bytes::<64>(concat!(
            "2718281828459045235360287471352662497757247093699959574966967627",
            "3141592653589793238462643383279502884197169399375105820974944592",
        ));
        let plain: Vec<u8> = (0..=255).cycle().take(512).collect();
        let mut cipher = Xts::new(&key).expect("a key");
        for (unit, first, last) in [
            (
                0xFF,
                "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b",
                "c4f36ffda9fcea70b9c6e693e148c151",
            ),
            (
                0xFFFF,
                "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11",
                "a4f9e27b42af8100cb9d59cef9645803",
            ),
        ] {
            let mut out = vec![0; 512];
            cipher.encrypt(unit, &plain, &mut out);
            assert_eq!(out[..32], bytes::<32>(first));
            assert_eq!(out[496..], bytes::<16>(last));
            let mut again = plain.clone();
            cipher.encrypt_in_place(unit, &mut again);
            assert_eq!(again, out);
            cipher.decrypt(unit, &mut again);
            assert_eq!(again, plain);
        }
    }

    #[test]
    fn a_key_of_two_equal_halves_is_refused() {
        assert!(Xts::new(&[7; KEY_BYTES]).is_none());
    }
}
