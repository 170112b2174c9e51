//! The two sides of TLS, as options of a socket.

use super::server::Server;
use secure::Psk;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The keys with which a host connects to one subsystem.
#[derive(Debug)]
pub struct Client {
    psks: Vec<Psk>,
    /// The key that worked last.
    preferred: AtomicUsize,
}

impl Client {
    /// Creates the host's side from the keys that it tries, in this order, each on a connection of
    /// its own: a peer that does not know an identity ends the connection. `None` without a key.
    #[must_use]
    pub fn new(psks: Vec<Psk>) -> Option<Arc<Self>> {
        (!psks.is_empty()).then(|| {
            Arc::new(Self {
                psks,
                preferred: AtomicUsize::new(0),
            })
        })
    }

    /// Returns the key of the attempt with this number, from 0: the one that worked last, then the
    /// others in order.
    pub(crate) fn attempt(&self, number: usize) -> Option<(usize, &Psk)> {
        let preferred = self.preferred.load(Ordering::Relaxed);
        let others = (0..self.psks.len()).filter(|&index| index != preferred);
        let index = std::iter::once(preferred).chain(others).nth(number)?;
        Some((index, &self.psks[index]))
    }

    /// Records that the key with this index worked.
    pub(crate) fn worked(&self, index: usize) {
        self.preferred.store(index, Ordering::Relaxed);
    }
}

/// TLS of a socket, by its role.
#[derive(Clone, Debug)]
pub enum Side {
    /// Of a listener's connections.
    Server(Arc<Server>),
    /// Of a connection that is made.
    Client(Arc<Client>),
}

/// Two sides are equal if they are the same object.
impl PartialEq for Side {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server(a), Self::Server(b)) => Arc::ptr_eq(a, b),
            (Self::Client(a), Self::Client(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Side {}
