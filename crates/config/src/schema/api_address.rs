//! The address of the HTTP interface: without encryption a loopback port or a Unix socket, with it
//! any port.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use super::as_text;
use crate::limits::UNIX_PATH_BYTES_MAX;

/// The address of the HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// A TCP port at a loopback address; port 0 takes any free one.
    Loopback(SocketAddr),
    /// A TCP port with TLS. A server listens at an IP address; a client may name the machine.
    Https {
        /// An IP address, or the name of a machine.
        host: String,
        /// The port; for a server, 0 takes any free one.
        port: u16,
    },
    /// A Unix socket that only its owner may use.
    Unix(PathBuf),
}

as_text!(ApiAddress);

/// The reason for which an address is none for the HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiAddressError {
    /// The address can be reached from other machines.
    #[error(
        "{0} is not a loopback address, and only https encrypts; \
         write \"127.0.0.1:{port}\", \"[::1]:{port}\", a Unix socket like \
         \"unix:/run/switchyard/api.sock\", or \"https://{0}\" with a certificate",
        port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// The path of the Unix socket is relative or too long.
    #[error(
        "the path of a Unix socket is absolute and has at most {UNIX_PATH_BYTES_MAX} bytes; write one like \"unix:/run/switchyard/api.sock\""
    )]
    Path,
    /// The part behind `https://` is no machine with a port.
    #[error(
        "write https:// with an address or a name and a port, like \"https://192.0.2.1:4421\", \
         \"https://[2001:db8::1]:4421\" or \"https://storage.example:4421\""
    )]
    Https,
    /// It is no address at all.
    #[error(
        "write \"127.0.0.1:4421\", \"unix:/run/switchyard/api.sock\" or \"https://192.0.2.1:4421\""
    )]
    Malformed,
}

impl FromStr for ApiAddress {
    type Err = ApiAddressError;

    fn from_str(text: &str) -> Result<Self, ApiAddressError> {
        let path = text.strip_prefix("unix:");
        if let Some(path) = path.or_else(|| text.starts_with('/').then_some(text)) {
            if !path.starts_with('/') || path.len() > UNIX_PATH_BYTES_MAX || path.contains('\0') {
                return Err(ApiAddressError::Path);
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(machine) = text.strip_prefix("https://") {
            return https(machine).ok_or(ApiAddressError::Https);
        }
        let address: SocketAddr = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}").parse(),
            None => text.parse(),
        }
        .map_err(|_| ApiAddressError::Malformed)?;
        if !address.ip().is_loopback() {
            return Err(ApiAddressError::NotLoopback(address));
        }
        Ok(Self::Loopback(address))
    }
}

/// Reads `HOST:PORT`; a URL may end with a slash.
fn https(machine: &str) -> Option<ApiAddress> {
    let (host, port) = machine.trim_end_matches('/').rsplit_once(':')?;
    let port = port.parse().ok()?;
    if let Some(host) = host.strip_prefix('[') {
        let host: Ipv6Addr = host.strip_suffix(']')?.parse().ok()?;
        return Some(ApiAddress::https((host, port).into()));
    }
    // The letters of names `[RFC 1123 §2.1]`.
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_name = !host.is_empty() && host.bytes().all(good);
    is_name.then(|| ApiAddress::Https {
        host: host.to_owned(),
        port,
    })
}

impl ApiAddress {
    /// The address of a port with TLS.
    #[must_use]
    pub fn https(address: SocketAddr) -> Self {
        Self::Https {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }

    /// Returns the address and port of one over TCP, as the authority of a URL.
    #[must_use]
    pub fn authority(&self) -> Option<String> {
        match self {
            Self::Loopback(address) => Some(address.to_string()),
            Self::Https { host, port } if host.contains(':') => Some(format!("[{host}]:{port}")),
            Self::Https { host, port } => Some(format!("{host}:{port}")),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => write!(f, "{address}"),
            Self::Https { .. } => {
                write!(f, "https://{}", self.authority().expect("it is one of TCP"))
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_encryption_only_this_machine_is_accepted() {
        for good in [
            "127.0.0.1:0",
            "[::1]:4421",
            "127.1.2.3:80",
            "unix:/run/a.sock",
            "https://0.0.0.0:4421",
            "https://[2001:db8::1]:443",
            "https://storage-1.example:4421",
        ] {
            let address: ApiAddress = good.parse().expect(good);
            assert_eq!(address.to_string(), good);
        }
        assert_eq!("localhost:1".parse(), "127.0.0.1:1".parse::<ApiAddress>());
        assert_eq!("/run/a".parse(), Ok(ApiAddress::Unix("/run/a".into())));
        for (bad, why) in [
            ("0.0.0.0:4421", "write \"127.0.0.1:4421\""),
            ("192.0.2.1:80", "or \"https://192.0.2.1:80\""),
            ("[::]:80", "not a loopback address"),
            ("unix:a.sock", "absolute"),
            (&format!("unix:/{}", "a".repeat(107)), "at most 107"),
            ("4421", "write \"127.0.0.1:4421\""),
            ("https://storage.example", "and a port"),
            ("https://2001:db8::1:443", "and a port"),
            ("https://:443", "and a port"),
            ("https://a b:443", "and a port"),
            ("https://u@storage.example:443", "and a port"),
        ] {
            let error = bad.parse::<ApiAddress>().expect_err(bad).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
