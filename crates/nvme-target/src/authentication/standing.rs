//! The standing of a controller's host: its proofs, and the tenant that it counts for.

use super::Authentication;
use base::mutation::{self, Mutation};
use secure::KeyRing;
use secure::chap::Secret;
use std::sync::Arc;

/// Proofs that the host of a controller has given, and consequences of them.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// The proofs of its name.
    pub(crate) proven: Authentication,
    /// The tenant of the host at Connect, or after its authentication; `None` for "default".
    pub(crate) tenant: Option<Arc<str>>,
    /// The admin queue was connected, and has to authenticate. Until then the controller counts for
    /// its address only, not for the host that it claims to be.
    pub(crate) is_pending: bool,
    /// I/O queues without TLS have to authenticate.
    pub(crate) queues_authenticate: bool,
    /// The secret by which the host has authenticated.
    secret: Option<Secret>,
}

impl Standing {
    /// The standing after Connect; `pending` if the host has to authenticate.
    pub(crate) fn connected(
        proven: Authentication,
        tenant: Option<Arc<str>>,
        is_pending: bool,
    ) -> Self {
        Self {
            proven,
            tenant,
            is_pending,
            queues_authenticate: is_pending,
            secret: None,
        }
    }

    /// The host has authenticated by this secret.
    pub(crate) fn authenticate(&mut self, secret: Option<Secret>) {
        self.proven.chap = true;
        self.is_pending = false;
        self.queues_authenticate = true;
        self.secret = secret;
    }

    /// The standing in a process that takes the controller over.
    pub(crate) fn taken_over(
        proven: Authentication,
        queues_authenticate: bool,
        secret: Option<Secret>,
    ) -> Self {
        Self {
            proven,
            queues_authenticate,
            secret,
            ..Self::default()
        }
    }

    /// Returns the secret by which the host has authenticated.
    pub(crate) const fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Revokes the proof by a secret that is no longer valid.
    pub(crate) fn check(&mut self, host: &str, keys: &KeyRing) {
        if let Some(secret) = &self.secret
            && !keys.chap(host).contains(secret)
            && !mutation::active(Mutation::ChapProofKept)
        {
            self.secret = None;
            self.proven.chap = false;
        }
    }

    /// Returns those of the required proofs that the host has not given, and will not give by the
    /// authentication in progress.
    pub(crate) fn missing(&self, required: Authentication) -> Authentication {
        let pending = Authentication {
            tls: false,
            chap: self.is_pending,
        };
        required.without(self.proven.and(pending))
    }
}
