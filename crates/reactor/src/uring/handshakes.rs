//! Connections whose TLS handshake is in progress, on the thread of [`tls::pool`](crate::tls).

use super::UringDriver;
use crate::op::{OpKey, OpNamespace, Outcome};
use crate::tls::Server;
use crate::tls::pool::{self, ConnectTls, Finished, Shake, Shaking};
use base::SlabKey;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl UringDriver {
    /// Begins the handshake of an accepted connection.
    pub(super) fn shake_accepted(
        &mut self,
        (key, listener): (OpKey, SlabKey),
        (fd, peer): (OwnedFd, SocketAddr),
        server: &Arc<Server>,
    ) {
        let listener = Some(listener);
        self.shaking.push(Shaking { key, listener });
        pool::accept(key, (fd, peer), server, &self.results);
    }

    /// Begins the handshake of a connection that was made.
    pub(super) fn shake_hands(&mut self, key: OpKey, fd: OwnedFd, tls: ConnectTls) {
        let listener = None;
        self.shaking.push(Shaking { key, listener });
        pool::connect(key, fd, tls, &self.results);
    }

    /// Completes the operations whose handshake has ended.
    pub(super) fn take_shaken(&mut self) {
        for Finished { key, result } in self.results.take() {
            let connects = matches!(result, Shake::Connected(_));
            let is_its = |it: &Shaking| it.key == key && it.listener.is_none() == connects;
            let Some(index) = self.shaking.iter().position(is_its) else {
                continue;
            };
            let listener = self.shaking.swap_remove(index).listener;
            let outcome = match result {
                // After the end of the accept, nothing more is accepted.
                Shake::Accepted(_) if !listener.is_some_and(|it| self.listens(it)) => continue,
                Shake::Accepted(result) => Outcome::Accepted(result.map_err(Into::into)),
                Shake::Connected(result) => {
                    self.connecting -= 1;
                    let adopted = result.map(|(fd, session)| self.adopt_fd(fd, Some(session)));
                    Outcome::Connected(adopted.map_err(Into::into))
                }
            };
            self.complete(key, outcome);
        }
    }

    /// Returns true while a handshake of this namespace is in progress.
    pub(super) fn shakes_hands(&self, op_namespace: OpNamespace) -> bool {
        let mut keys = self.shaking.iter().map(|it| it.key.op_namespace);
        keys.any(|other| other == op_namespace)
    }
}
