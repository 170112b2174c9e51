//! Why a connection with TLS could not be made.

use secure::record::Alert;
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a handshake failed. No text contains a key, or a value derived from one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TlsError {
    /// On a target: the host sent NVMe/TCP without TLS.
    #[error("the host does not use TLS, which this address requires: connect with --tls")]
    ClearText,
    /// On a target: the first bytes are neither TLS nor NVMe/TCP, or a malformed ClientHello.
    #[error("not a TLS handshake: {0}")]
    Hello(String),
    /// On a target: the host offers no pre-shared key.
    #[error("the host offers no pre-shared key, without which no TLS is possible here")]
    NoPsk,
    /// On a target: there is no key for this identity.
    #[error(
        "unknown identity {offered}: there is no TLS key for this host; known are the hosts {known}"
    )]
    UnknownHost {
        /// The identity, without the digest of version 1.
        offered: String,
        /// The hosts with keys.
        known: String,
    },
    /// On a target: the host has keys, but with another hash function.
    #[error(
        "unknown identity {offered}: the keys of this host are for {known}; check the key's hash"
    )]
    WrongHash {
        /// The identity, without the digest of version 1.
        offered: String,
        /// The hash functions of the host's keys.
        known: String,
    },
    /// On a target: the host has a key for this identity, but it is another one.
    #[error("wrong key for identity {offered}: give host and target the same key")]
    WrongKey {
        /// The identity, without the digest of version 1.
        offered: String,
    },
    /// On a target: the host's proof that it has the key is of another hash function than the key.
    #[error(
        "the host's binder for identity {offered} has another hash function than its key: use a \
         key for SHA-256, the only one that tlshd with older GnuTLS supports"
    )]
    OtherBinder {
        /// The identity, without the digest of version 1.
        offered: String,
    },
    /// On a target: the host does not offer the cipher suite of its key.
    #[error("the host does not offer the cipher suite of its key for identity {offered}")]
    NoSuite {
        /// The identity, without the digest of version 1.
        offered: String,
    },
    /// On a host: the peer answered something else than TLS.
    #[error("the target does not use TLS at this address: connect without a TLS key")]
    NotTls,
    /// On a host: the peer does not know the identity.
    #[error(
        "the target does not know the identity {identity} (alert {alert}): check host NQN, \
         subsystem NQN and the key's hash, and that the target has a key for this host"
    )]
    UnknownIdentity {
        /// The identity that was offered, without the digest of version 1.
        identity: String,
        /// The peer's alert.
        alert: Alert,
    },
    /// On a host: the peer has another key.
    #[error(
        "the target has another key for the identity {identity} (alert {alert}): give host and \
         target the same key"
    )]
    OtherKey {
        /// The identity that was offered, without the digest of version 1.
        identity: String,
        /// The peer's alert.
        alert: Alert,
    },
    /// On a host: the peer chose a certificate.
    #[error(
        "the peer uses a certificate instead of the pre-shared key: it is no NVMe/TCP target, or has \
         no key for this host"
    )]
    Certificate,
    /// The peer refused the handshake for another reason.
    #[error("the peer refused the TLS handshake with the alert {0}")]
    Alert(Alert),
    /// The peer closed the connection during the handshake.
    #[error(
        "the peer closed the connection during the TLS handshake: it has no TLS at this address, \
         or no key for this host"
    )]
    Closed,
    /// The handshake took too long.
    #[error("the TLS handshake was not finished in time")]
    TimedOut,
    /// Too many handshakes are in progress.
    #[error("too many TLS handshakes are in progress from this address")]
    Crowded,
    /// The connection failed.
    #[error("{0}")]
    Io(String),
    /// The library's reason.
    #[error("the TLS handshake failed: {0}")]
    Library(String),
}

impl TlsError {
    /// Returns how much the failure of one key says about the cause.
    pub(crate) const fn says(&self) -> u8 {
        match self {
            Self::OtherKey { .. } => 3,
            Self::UnknownIdentity { .. } => 2,
            Self::Alert(_) | Self::Certificate => 1,
            _ => 0,
        }
    }

    /// Returns true if another key, or the old derivation of the same one, may succeed.
    pub(crate) const fn is_about_keys(&self) -> bool {
        matches!(
            self,
            Self::UnknownIdentity { .. }
                | Self::OtherKey { .. }
                | Self::Alert(_)
                | Self::Certificate
                | Self::Closed
        )
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match &error {
            TlsError::TimedOut => io::ErrorKind::TimedOut,
            TlsError::Closed => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, error)
    }
}

/// An accepted connection whose handshake failed: the error of
/// [`Outcome::Accepted`](crate::Outcome::Accepted).
#[derive(Clone, Debug, Error)]
#[error("{error}")]
pub struct Refused {
    /// The peer.
    pub peer: SocketAddr,
    /// The reason.
    pub error: TlsError,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refused)
    }
}
