//! Keys of encrypted devices. They are cleared when they are dropped, and never shown.

use super::xts::KEY_BYTES;
use crate::device::DeviceError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a user's key.
const USER_KEY_BYTES: usize = 32;

/// A user's key, which wraps the data key of a device.
pub struct CryptKey(Zeroizing<[u8; USER_KEY_BYTES]>);

impl CryptKey {
    /// Returns the key with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; USER_KEY_BYTES]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Reads a key of 32 bytes in base64; white space around it is ignored.
    ///
    /// # Errors
    /// Any other text, with the remedy. The error does not contain the text.
    pub fn from_text(text: &str) -> Result<Self, DeviceError> {
        let mut bytes = Zeroizing::new([0; USER_KEY_BYTES + 1]);
        let decoded = STANDARD.decode_slice(text.trim(), &mut bytes[..]);
        match (decoded, bytes.first_chunk()) {
            (Ok(USER_KEY_BYTES), Some(bytes)) => Ok(Self::new(bytes)),
            _ => Err(DeviceError::Invalid(
                "the key is not 32 bytes in base64; create one with openssl rand -base64 32"
                    .to_owned(),
            )),
        }
    }

    pub(super) fn bytes(&self) -> &[u8; USER_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for CryptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptKey").finish_non_exhaustive()
    }
}

/// The key with which the blocks of a device are encrypted.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; KEY_BYTES]>);

impl DataKey {
    /// Returns the key with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_neither_shown_nor_guessed() {
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let key = CryptKey::from_text(&format!(" {text}\n")).expect("a key");
        assert!((0..).zip(key.bytes()).all(|(i, &byte)| byte == i));
        assert_eq!(format!("{key:?}"), "CryptKey { .. }");
        assert_eq!(format!("{:?}", DataKey::new(&[1; 64])), "DataKey { .. }");
        for bad in [
            "",
            "AAEC",
            &text[..43],
            &format!("{text}AAAA"),
            &"A".repeat(4096),
            "*",
        ] {
            let error = CryptKey::from_text(bad).expect_err(bad).to_string();
            assert!(error.contains("openssl rand -base64 32"), "{error}");
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
    }
}
