//! Addresses that front ends listen on.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, which only the user of the process may open.
    Unix(PathBuf),
    /// TCP on a loopback address.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// Parses `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let resolved = reactor::address::parse(text)
            .ok()
            .or_else(|| text.to_socket_addrs().ok()?.next());
        let address = resolved
            .ok_or_else(|| format!("{text} is not HOST:PORT; use, for example, 127.0.0.1:10809"))?;
        Ok(Self::Tcp(address))
    }
}
