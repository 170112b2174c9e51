//! The tokens that admit clients, as hashes, each with a role.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::{HeaderMap, header};

use super::token::{Token, hash};
use config::limits::API_TOKENS_MAX;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// To look: GET and HEAD.
    Read,
    /// To look and to change.
    Change,
}

impl Role {
    /// Returns its name in the file of tokens.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Change => "change",
        }
    }
}

/// The tokens of an interface.
#[derive(Default)]
pub(crate) struct Tokens(Vec<(Role, [u8; 32])>);

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// The line with a fault, and the remedy; never its text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace();
            let Some(role) = words.next() else {
                continue;
            };
            let role = match role {
                "read" => Some(Role::Read),
                "change" => Some(Role::Change),
                _ => None,
            };
            let hash = words.next().and_then(from_hexadecimal);
            let (Some(role), Some(hash), None) = (role, hash, words.next()) else {
                return Err(format!(
                    "line {number} is no token; write `read HASH` or `change HASH`, with HASH of \
                     `printf %s \"$TOKEN\" | sha256sum`"
                ));
            };
            tokens.push((role, hash));
        }
        if tokens.len() > API_TOKENS_MAX {
            return Err(format!("it has more than {API_TOKENS_MAX} tokens"));
        }
        Ok(Self(tokens))
    }

    /// Adds one.
    pub(super) fn add(&mut self, role: Role, token: &Token) {
        self.0.push((role, token.hash()));
    }

    /// Returns true if no client is admitted.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the role of a client that sends a request with these headers. The time of the comparison
    /// tells nothing about tokens.
    pub(crate) fn role(&self, headers: &HeaderMap) -> Option<Role> {
        let shown = headers.get(header::AUTHORIZATION)?;
        // `[RFC 9110 §11.4]`: the name of the scheme in letters of either case, and blanks.
        let (scheme, shown) = shown.as_bytes().split_at_checked("Bearer ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        let shown = shown.trim_ascii_start();
        if shown.len() > Token::BYTES_MAX {
            return None;
        }
        let shown = hash(shown);
        let is_shown = |expected: &[u8; 32]| verify_slices_are_equal(&shown, expected).is_ok();
        let roles = self
            .0
            .iter()
            .map(|(role, hash)| is_shown(hash).then_some(*role));
        roles.max().flatten()
    }
}

fn from_hexadecimal(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(hash)
}

impl fmt::Debug for Tokens {
    /// Logs never show them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of "abcdefghijklmnop".
    const HASH: &str = "f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf";

    #[test]
    fn files_of_tokens_are_read() {
        let text = format!("# scrapers\n\nread {HASH} # prometheus\nchange\t{HASH}\n");
        let tokens = Tokens::parse(&text).expect("two tokens");
        assert_eq!(format!("{tokens:?}"), "2 tokens");
        let mut headers = HeaderMap::new();
        let token = Token::new("abcdefghijklmnop").expect("a token");
        headers.insert(header::AUTHORIZATION, token.header());
        assert_eq!(tokens.role(&headers), Some(Role::Change));
        let read = Tokens::parse(&format!("read {HASH}")).expect("one token");
        assert_eq!(read.role(&headers), Some(Role::Read));
        assert_eq!(Tokens::default().role(&headers), None);
    }

    #[test]
    fn lines_that_are_no_tokens_are_named_and_not_shown() {
        for bad in [
            "read".to_owned(),
            "admin ".to_owned() + HASH,
            "read abcdefghijklmnop".to_owned(),
            format!("read {HASH}0"),
            format!("read {HASH} -"),
            format!("read +{}", &HASH[1..]),
            format!("read é{}", &HASH[2..]),
        ] {
            let error = Tokens::parse(&format!("\n{bad}\n")).expect_err(&bad);
            assert!(error.starts_with("line 2 is no token; write"), "{error}");
            assert!(!error.contains("abcdef"), "{error}");
        }
        let many = format!("read {HASH}\n").repeat(API_TOKENS_MAX + 1);
        Tokens::parse(&many).expect_err("they are too many");
    }
}
