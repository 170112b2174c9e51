//! TLS of the listeners, and what it proves about a host. `[NVMe-TCP 1.1 §3.6.1]`

use base::Nanos;
use reactor::tls::{Keys, Server, Side};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::fabrics::DiscoveryLogEntry;

base::named! {
    /// Whether hosts use TLS.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum TlsMode {
        /// Connections with TLS are refused.
        #[default]
        Off = "off",
        /// Hosts may use TLS.
        Allowed = "allowed",
        /// Connections without TLS are refused.
        Required = "required",
    }
}

/// An address that hosts connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0: any free port.
    pub address: SocketAddr,
    /// TLS on connections to it, with the keys set by [`Target::set_keys`](crate::Target::set_keys).
    pub tls: TlsMode,
}

/// A listener that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenListener {
    /// The address that was given; it may have port 0.
    pub requested: SocketAddr,
    /// The address in use, and TLS.
    pub bound: Listener,
}

/// A listener without TLS.
impl From<SocketAddr> for Listener {
    fn from(address: SocketAddr) -> Self {
        let tls = TlsMode::Off;
        Self { address, tls }
    }
}

impl TlsMode {
    /// Returns TLS of a listener; `None` if it is off. A handshake ends after `timeout`.
    pub(crate) fn side(self, timeout: Nanos, keys: &Arc<Keys>) -> Option<Side> {
        let required = match self {
            Self::Off => return None,
            Self::Allowed => false,
            Self::Required => true,
        };
        Some(Side::Server(Server::new(
            required,
            timeout,
            Arc::clone(keys),
        )))
    }

    /// Returns TREQ bits 1:0 and SECTYPE of the discovery log.
    ///
    /// Without any secure channel it is "not specified": "not required" would mean that there is
    /// one, and some hosts then request TLS regardless of SECTYPE.
    pub(crate) const fn in_discovery_log(self) -> (u8, u8) {
        use DiscoveryLogEntry as Entry;
        match self {
            Self::Off => (Entry::TREQ_NOT_SPECIFIED, Entry::SECTYPE_NONE),
            Self::Allowed => (Entry::TREQ_NOT_REQUIRED, Entry::SECTYPE_TLS13),
            Self::Required => (Entry::TREQ_REQUIRED, Entry::SECTYPE_TLS13),
        }
    }
}
