//! An address that hosts connect to.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::{Keyword as _, TlsMode, as_text};

/// An address that hosts connect to, as people write it: `192.0.2.7:4420`, or with its own use of
/// TLS: `192.0.2.7:4420 tls=required`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0: any free port.
    pub address: SocketAddr,
    /// Use of TLS on it; `None`: that of the [configuration](super::Configuration::tls).
    pub tls: Option<TlsMode>,
}

as_text!(Listener);

/// The reason for which a text is no listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenerError {
    /// It does not begin with an IP address with a port.
    #[error("write an IP address with a port, like \"127.0.0.1:4420\" or \"[::1]:4420\"")]
    Address,
    /// The words behind the address say nothing about TLS.
    #[error("write tls=off, tls=allowed or tls=required behind the address, or nothing")]
    Tls,
}

impl From<SocketAddr> for Listener {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

impl FromStr for Listener {
    type Err = ListenerError;

    fn from_str(text: &str) -> Result<Self, ListenerError> {
        let (address, tls) = match text.split_once(' ') {
            Some((address, tls)) => (address, Some(tls.trim_start())),
            None => (text, None),
        };
        let address = reactor::address::parse(address).map_err(|_| ListenerError::Address)?;
        let mode = |tls: &str| {
            let word = tls.strip_prefix("tls=")?;
            TlsMode::WORDS.iter().find(|(known, _)| *known == word)
        };
        let mode = |tls| mode(tls).map(|(_, mode)| *mode).ok_or(ListenerError::Tls);
        let tls = tls.map(mode).transpose()?;
        Ok(Self { address, tls })
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        self.tls.map_or(Ok(()), |tls| write!(f, " tls={tls}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_and_written() {
        for text in [
            "127.0.0.1:4420",
            "[::1]:4420 tls=off",
            "192.0.2.7:0 tls=allowed",
            "192.0.2.7:4420 tls=required",
        ] {
            let listener: Listener = text.parse().expect(text);
            assert_eq!(listener.to_string(), text);
        }
        for (text, error) in [
            ("", ListenerError::Address),
            ("127.0.0.1", ListenerError::Address),
            (" 127.0.0.1:4420", ListenerError::Address),
            ("127.0.0.1:4420 tls", ListenerError::Tls),
            ("127.0.0.1:4420 tls=on", ListenerError::Tls),
            ("127.0.0.1:4420 ", ListenerError::Tls),
            ("127.0.0.1:4420 tls=off tls=off", ListenerError::Tls),
        ] {
            assert_eq!(text.parse::<Listener>(), Err(error), "{text:?}");
        }
    }
}
