//! The state of an exchange of DH-HMAC-CHAP on a connection.

use crate::options::ConnectOptions;
use reactor::BufferPool;
use secure::chap::{HostExchange, Names, Secret};
use std::sync::Arc;

/// The secrets of a host for a subsystem.
#[derive(Debug)]
pub(super) struct Chap {
    pub(super) names: Names,
    pub(super) secret: Secret,
    pub(super) controller: Option<Secret>,
}

impl Chap {
    /// Returns the secrets of these options; `None` if they have none.
    pub(super) fn new(options: &ConnectOptions) -> Option<Arc<Self>> {
        let secret = options.chap_secret.clone()?;
        let names = Names {
            hostnqn: options.host.nqn.as_str().to_owned(),
            subnqn: options.subsystem.as_str().to_owned(),
        };
        let controller = options.chap_controller_secret.clone();
        Some(Arc::new(Self {
            names,
            secret,
            controller,
        }))
    }
}

/// An exchange in progress.
#[derive(Debug)]
pub(super) struct Authentication {
    pub(super) exchange: HostExchange,
    /// Memory of received messages: requests may hold every buffer of the core.
    pub(super) buffers: BufferPool,
    pub(super) outstanding: Outstanding,
    /// The controller requires the exchange; otherwise only the host does.
    pub(super) is_required: bool,
    /// The connection was live before, and has other commands.
    pub(super) is_again: bool,
}

/// The unfinished step of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outstanding {
    /// Authentication Send, after which the next message is received.
    Send,
    /// Authentication Send with the last message, after which the connection is live.
    SendLast,
    /// Authentication Send with the message that ends a failed exchange.
    SendFailure,
    /// Authentication Receive.
    Receive,
    /// The driver computes.
    Compute,
}

impl Outstanding {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Receive => "Authentication Receive",
            _ => "Authentication Send",
        }
    }
}
