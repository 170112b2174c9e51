//! The address of the HTTP interface: a loopback port or a Unix socket, and nothing else.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::as_text;
use crate::limits::UNIX_PATH_BYTES_MAX;

/// The address of the HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// A TCP port at a loopback address; port 0 takes any free one.
    Loopback(SocketAddr),
    /// A Unix socket that only its owner may use.
    Unix(PathBuf),
}

as_text!(ApiAddress);

/// The reason for which an address is none for the HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiAddressError {
    /// The address can be reached from other machines.
    #[error(
        "{0} is not a loopback address, and the interface does not encrypt; \
         write \"127.0.0.1:{port}\", \"[::1]:{port}\" or a Unix socket like \"unix:/run/switchyard/api.sock\"",
        port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// The path of the Unix socket is relative or too long.
    #[error(
        "the path of a Unix socket is absolute and has at most {UNIX_PATH_BYTES_MAX} bytes; write one like \"unix:/run/switchyard/api.sock\""
    )]
    Path,
    /// It is no address at all.
    #[error("write \"127.0.0.1:4421\" or \"unix:/run/switchyard/api.sock\"")]
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

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_accepted() {
        for good in [
            "127.0.0.1:0",
            "[::1]:4421",
            "127.1.2.3:80",
            "unix:/run/a.sock",
        ] {
            let address: ApiAddress = good.parse().expect(good);
            assert_eq!(address.to_string(), good);
        }
        assert_eq!("localhost:1".parse(), "127.0.0.1:1".parse::<ApiAddress>());
        assert_eq!("/run/a".parse(), Ok(ApiAddress::Unix("/run/a".into())));
        for (bad, why) in [
            ("0.0.0.0:4421", "write \"127.0.0.1:4421\""),
            ("192.0.2.1:80", "not a loopback address"),
            ("[::]:80", "not a loopback address"),
            ("unix:a.sock", "absolute"),
            (&format!("unix:/{}", "a".repeat(107)), "at most 107"),
            ("4421", "write \"127.0.0.1:4421\""),
        ] {
            let error = bad.parse::<ApiAddress>().expect_err(bad).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
