//! TLS of a run: who uses it, and the keys that hosts have and targets know.

use super::feature::Feature;
use super::tenants::host_name;
use base::Prng;
use secure::{Hash, HostKeys, KeyRing, TlsKey};
use std::collections::BTreeSet;
use target::{Authentication, TlsMode};

/// TLS of a run.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whether hosts must use it at every target.
    pub mode: TlsMode,
    /// Whether the hosts' subsystem requires it.
    pub authentication: Authentication,
    /// By host: true if it uses TLS.
    pub hosts: Vec<bool>,
}

impl Tls {
    /// Draws TLS of a run with these features; `None` without it.
    pub(super) fn draw(mut prng: Prng, features: &BTreeSet<Feature>, hosts: usize) -> Option<Self> {
        let has = |feature| features.contains(&feature);
        // These hosts connect in clear.
        let clear = has(Feature::ByHand) || has(Feature::Liar);
        let required = prng.chance(1, 2) && !clear;
        let authentication = Authentication {
            tls: prng.chance(1, 2),
            chap: false,
        };
        // Nothing else detects a flipped bit.
        let unprotected = has(Feature::Flips) && !has(Feature::Digests);
        let all = required || authentication.tls || unprotected;
        let drawn = (0..hosts).map(|host| prng.chance(3, 4) || all || host == 0);
        let hosts = drawn.collect();
        has(Feature::Tls).then_some(Self {
            mode: if required {
                TlsMode::Required
            } else {
                TlsMode::Allowed
            },
            authentication,
            hosts,
        })
    }

    /// True if every host uses it.
    pub(super) fn is_everywhere(&self) -> bool {
        self.hosts.iter().all(|&has| has)
    }
}

/// The keys of all hosts: each offers two.
#[derive(Debug)]
pub(super) struct Keys(Vec<[TlsKey; 2]>);

/// The keys of a host that a target knows.
#[derive(Clone, Debug)]
pub(super) struct KnownKeys {
    /// By host.
    hosts: Vec<Vec<TlsKey>>,
    /// Of the stranger.
    stranger: Option<TlsKey>,
}

/// The name of a host that has a key, and no rights.
pub(super) const STRANGER: &str = "nqn.2026-11.io.switchyard:stranger";

impl Keys {
    pub(super) fn draw(prng: &mut Prng, hosts: usize) -> Self {
        Self((0..hosts).map(|_| [draw(prng), draw(prng)]).collect())
    }

    /// Returns the keys that a host offers.
    pub(super) fn of(&self, host: usize) -> &[TlsKey] {
        &self.0[host]
    }

    /// Returns the first keys that a target knows.
    pub(super) fn known(&self) -> KnownKeys {
        KnownKeys {
            hosts: self.0.iter().map(|keys| keys.to_vec()).collect(),
            stranger: None,
        }
    }
}

impl KnownKeys {
    /// Sets the known keys of a host.
    pub(super) fn set(&mut self, host: usize, keys: Vec<TlsKey>) {
        self.hosts[host] = keys;
    }

    /// Sets the key of the [stranger](STRANGER).
    pub(super) fn set_stranger(&mut self, key: Option<TlsKey>) {
        self.stranger = key;
    }

    /// Returns the keys in the form of a target's configuration.
    pub(super) fn ring(&self) -> KeyRing {
        let entry = |name: String, tls: &[TlsKey]| {
            let tls = tls.to_vec();
            let keys = HostKeys {
                tls,
                ..HostKeys::default()
            };
            (name, keys)
        };
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.map(|(host, keys)| entry(host_name(host), keys));
        let stranger = entry(STRANGER.to_owned(), self.stranger.as_slice());
        KeyRing {
            hosts: hosts.chain([stranger]).collect(),
            ..KeyRing::default()
        }
    }
}

/// Draws a key of any kind.
pub(super) fn draw(prng: &mut Prng) -> TlsKey {
    let (hash, length) = match prng.below(4) {
        0 => (Some(Hash::Sha256), 32),
        1 => (Some(Hash::Sha384), 48),
        2 => (None, 32),
        _ => (None, 48),
    };
    let mut key = vec![0; length];
    prng.fill(&mut key);
    TlsKey::new(hash, &key).expect("a legal length")
}
