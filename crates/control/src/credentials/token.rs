//! The token of a client.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use axum::http::HeaderValue;
use zeroize::{Zeroize as _, Zeroizing};

/// A secret that authenticates a client of the interface over TCP.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

/// A text that is no [`Token`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no token; write {} to {} letters, digits and signs without blanks, such as the output \
     of `head -c 24 /dev/urandom | base64`",
    Token::BYTES_MIN,
    Token::BYTES_MAX
)]
pub struct TokenError;

impl Token {
    /// Fewer bytes could be guessed.
    pub const BYTES_MIN: usize = 16;

    /// More bytes make no secret better.
    pub const BYTES_MAX: usize = 256;

    /// A token of this text.
    ///
    /// # Errors
    /// A text that is too short or too long, or that no header can carry.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let good = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&text.len());
        if good && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(TokenError)
        }
    }

    /// The Authorization header that shows it.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        let mut text = format!("Bearer {}", *self.0);
        let mut value = HeaderValue::from_str(&text).expect("printable ASCII");
        text.zeroize();
        value.set_sensitive(true);
        value
    }

    /// Returns its SHA-256.
    pub(super) fn hash(&self) -> [u8; 32] {
        hash(self.0.as_bytes())
    }
}

/// Returns the SHA-256 of a token, or of what was shown as one.
pub(super) fn hash(token: &[u8]) -> [u8; 32] {
    let hash = digest(&SHA256, token);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Debug for Token {
    /// Logs never show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}
