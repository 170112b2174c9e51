//! The token of an interface on a TCP port.
//!
//! Every user and every container that shares the network of this machine reaches a loopback port;
//! the file of a Unix socket only its owner opens. So a request over TCP shows a token.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;

/// A secret that authenticates clients of the interface.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

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
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError)
        }
    }

    /// The Authorization header that shows it.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        let value = format!("Bearer {}", self.0);
        let mut value = HeaderValue::from_str(&value).expect("printable ASCII");
        value.set_sensitive(true);
        value
    }

    /// Returns true for a request with this token. The time of the comparison tells nothing about
    /// the matching part.
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let Some(shown) = headers.get(header::AUTHORIZATION) else {
            return false;
        };
        // `[RFC 9110 §11.4]`: the name of the scheme in letters of either case, and blanks.
        let Some((scheme, shown)) = shown.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return false;
        }
        let (shown, expected) = (shown.trim_ascii_start(), self.0.as_bytes());
        let differing = shown
            .iter()
            .zip(expected)
            .fold(0, |all, (a, b)| all | (a ^ b));
        shown.len() == expected.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    /// Logs never show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

pub(super) async fn check(
    State(token): State<Option<Token>>,
    request: Request,
    next: Next,
) -> Response {
    if token.is_none_or(|token| token.is_shown(request.headers())) {
        return next.run(request).await;
    }
    let error = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "over TCP this interface answers only those who know its token",
        "send Authorization: Bearer TOKEN; commands take it from SWITCHYARD_API_TOKEN or \
         SWITCHYARD_API_TOKEN_FILE, as the target did",
    );
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (challenge, error).into_response()
}
