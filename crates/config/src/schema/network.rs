//! A network from which hosts connect.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::as_text;
use ipnet::IpNet;

/// A network as people write it: `192.0.2.0/24`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(pub IpNet);

as_text!(Network);

/// The reason for which a text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is neither a network nor an address.
    #[error("write a network like \"192.0.2.0/24\" or \"2001:db8::/32\", or an address")]
    Malformed,
    /// It is an address with the length of a prefix, and which of the two is meant is unclear.
    #[error("the address has bits behind its prefix; write \"{0}\" for the network")]
    BitsBehindPrefix(IpNet),
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.to_canonical().into()));
        }
        let network: IpNet = text.parse().map_err(|_| NetworkError::Malformed)?;
        if network != network.trunc() {
            return Err(NetworkError::BitsBehindPrefix(network.trunc()));
        }
        Ok(Self(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            self.0.addr().fmt(f)
        } else {
            self.0.fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for (text, expected) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::1", "::1"),
        ] {
            let network: Network = text.parse().expect(text);
            assert_eq!(network.to_string(), expected);
        }
        for text in [
            "",
            "here",
            "192.0.2.0/33",
            "192.0.2/24",
            "192.0.2.0/",
            "[::1]",
        ] {
            assert_eq!(
                text.parse::<Network>(),
                Err(NetworkError::Malformed),
                "{text}"
            );
        }
        let error = "192.0.2.7/24".parse::<Network>().expect_err("two meanings");
        assert!(error.to_string().contains("\"192.0.2.0/24\""), "{error}");
    }
}
