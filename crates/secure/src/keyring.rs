//! The keys of hosts.

use std::collections::{BTreeMap, BTreeSet};

use crate::Hash;
use crate::chap::{Group, Secret};
use crate::psk::TlsKey;

/// The keys of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostKeys {
    /// Configured PSKs of TLS. Several are valid at the same time while keys are changed; a host
    /// offers them in this order.
    pub tls: Vec<TlsKey>,
    /// Secrets of DH-HMAC-CHAP that prove the host. Several are valid at the same time while
    /// secrets are changed; a host uses the first.
    pub chap: Vec<Secret>,
    /// Secret of DH-HMAC-CHAP that proves the controller to the host.
    pub controller: Option<Secret>,
}

/// The keys of all hosts of a target. A change replaces the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRing {
    /// Keys of hosts by NQN.
    pub hosts: BTreeMap<String, HostKeys>,
    /// Keys of every host that is allowed and has no keys of the kind itself.
    pub any: HostKeys,
    /// NQNs of the hosts that may not use TLS.
    pub without_tls: BTreeSet<String>,
    /// What the target accepts in DH-HMAC-CHAP.
    pub policy: ChapPolicy,
}

/// Hash functions and groups that a target accepts in DH-HMAC-CHAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChapPolicy {
    /// Hash functions; default all.
    pub hashes: Vec<Hash>,
    /// Diffie-Hellman groups; default all.
    pub groups: Vec<Group>,
}

impl Default for ChapPolicy {
    fn default() -> Self {
        Self {
            hashes: Hash::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
        }
    }
}

impl KeyRing {
    /// Returns the configured PSKs of a host: its own, or else those of any host.
    #[must_use]
    pub fn tls(&self, hostnqn: &str) -> &[TlsKey] {
        if self.without_tls.contains(hostnqn) {
            return &[];
        }
        let own = self.hosts.get(hostnqn).filter(|own| !own.tls.is_empty());
        &own.unwrap_or(&self.any).tls
    }

    /// Returns the secrets of DH-HMAC-CHAP that prove a host: its own, or else those of any host.
    #[must_use]
    pub fn chap(&self, hostnqn: &str) -> &[Secret] {
        &self.chap_keys(hostnqn).chap
    }

    /// Returns the secret that proves the controller to a host: the one that stands with the
    /// [host's secrets](Self::chap).
    #[must_use]
    pub fn controller(&self, hostnqn: &str) -> Option<&Secret> {
        self.chap_keys(hostnqn).controller.as_ref()
    }

    /// Returns true if no host has a configured PSK.
    #[must_use]
    pub fn is_without_tls(&self) -> bool {
        let mut all = self.hosts.values().chain([&self.any]);
        all.all(|keys| keys.tls.is_empty())
    }

    /// Returns true if no host has a secret of DH-HMAC-CHAP.
    #[must_use]
    pub fn is_without_chap(&self) -> bool {
        let mut all = self.hosts.values().chain([&self.any]);
        all.all(|keys| keys.chap.is_empty())
    }

    fn chap_keys(&self, hostnqn: &str) -> &HostKeys {
        let own = self.hosts.get(hostnqn).filter(|own| !own.chap.is_empty());
        own.unwrap_or(&self.any)
    }
}
