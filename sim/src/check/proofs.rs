//! Proofs of hosts' names: TLS and DH-HMAC-CHAP of a run, and the keys that hosts have and targets
//! know.

use super::feature::Feature;
use super::tenants::host_name;
use base::Prng;
use secure::chap::{Group, Secret};
use secure::keyring::ChapPolicy;
use secure::{Hash, HostKeys, KeyRing, TlsKey};
use std::collections::BTreeSet;
use target::{Authentication, TlsMode};

/// TLS of a run.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whether hosts must use it at every target.
    pub mode: TlsMode,
    /// The hosts' subsystem requires it.
    pub required: bool,
    /// By host: true if it uses TLS.
    pub hosts: Vec<bool>,
}

impl Tls {
    /// Draws TLS of a run with these features; `None` without it.
    fn draw(mut prng: Prng, features: &BTreeSet<Feature>, hosts: usize) -> Option<Self> {
        let has = |feature| features.contains(&feature);
        // These hosts connect in clear.
        let clear = has(Feature::ByHand) || has(Feature::Liar);
        let everywhere = prng.chance(1, 2) && !clear;
        let required = prng.chance(1, 2);
        // Nothing else detects a flipped bit.
        let unprotected = has(Feature::Flips) && !has(Feature::Digests);
        let all = everywhere || required || unprotected;
        let drawn = (0..hosts).map(|host| prng.chance(3, 4) || all || host == 0);
        let hosts = drawn.collect();
        has(Feature::Tls).then_some(Self {
            mode: if everywhere {
                TlsMode::Required
            } else {
                TlsMode::Allowed
            },
            required,
            hosts,
        })
    }
}

/// DH-HMAC-CHAP of a run.
#[derive(Clone, Debug)]
pub struct Chap {
    /// The hosts' subsystem requires it.
    pub required: bool,
    /// By host: true if it has a secret.
    pub hosts: Vec<bool>,
    /// By host: true if, with a secret, it requires a proof of the target.
    pub mutual: Vec<bool>,
    /// The group that targets accept.
    pub group: Group,
}

impl Chap {
    /// Draws DH-HMAC-CHAP of a run with these features; `None` without it.
    fn draw(mut prng: Prng, features: &BTreeSet<Feature>, hosts: usize) -> Option<Self> {
        let required = prng.chance(1, 2);
        let drawn = (0..hosts).map(|host| prng.chance(3, 4) || required || host == 0);
        let drawn = drawn.collect();
        // Large groups take milliseconds per connection.
        let group = match prng.below(16) {
            0 => Group::Ffdhe2048,
            _ => Group::Null,
        };
        let mutual = (0..hosts).map(|_| prng.chance(1, 2)).collect();
        features.contains(&Feature::Chap).then_some(Self {
            required,
            hosts: drawn,
            mutual,
            group,
        })
    }
}

/// The proofs of hosts' names in a run.
#[derive(Clone, Debug)]
pub struct Proofs {
    /// TLS, if there is any.
    pub tls: Option<Tls>,
    /// DH-HMAC-CHAP, if there is any.
    pub chap: Option<Chap>,
}

impl Proofs {
    /// Draws the proofs of a run with these features.
    pub(super) fn draw(
        [of_tls, of_chap]: [Prng; 2],
        features: &BTreeSet<Feature>,
        hosts: usize,
    ) -> Self {
        Self {
            tls: Tls::draw(of_tls, features, hosts),
            chap: Chap::draw(of_chap, features, hosts),
        }
    }

    /// True if every host uses TLS.
    pub(super) fn is_all_tls(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| tls.hosts.iter().all(|&has| has))
    }

    /// Whether targets use TLS.
    pub(super) fn mode(&self) -> TlsMode {
        self.tls.as_ref().map_or(TlsMode::Off, |tls| tls.mode)
    }

    /// True if a host uses TLS.
    pub(super) fn has_tls(&self, host: usize) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.hosts[host])
    }

    /// True if a host has a secret of DH-HMAC-CHAP.
    pub(super) fn has_chap(&self, host: usize) -> bool {
        self.chap.as_ref().is_some_and(|chap| chap.hosts[host])
    }

    /// True if a host with a secret requires a proof of the target.
    pub(super) fn is_mutual(&self, host: usize) -> bool {
        self.has_chap(host) && self.chap.as_ref().is_some_and(|chap| chap.mutual[host])
    }

    /// The proofs that the hosts' subsystem requires.
    pub(super) fn authentication(&self) -> Authentication {
        Authentication {
            tls: self.tls.as_ref().is_some_and(|tls| tls.required),
            chap: self.chap.as_ref().is_some_and(|chap| chap.required),
        }
    }
}

/// The keys of a host: two of each kind.
#[derive(Debug)]
pub(super) struct OwnKeys {
    pub(super) tls: [TlsKey; 2],
    pub(super) chap: [Secret; 2],
    pub(super) controller: Secret,
}

/// The name of a host that has a key, and no rights.
pub(super) const STRANGER: &str = "nqn.2026-11.io.switchyard:stranger";

impl OwnKeys {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        Self {
            tls: [draw(prng), draw(prng)],
            chap: [draw_secret(prng), draw_secret(prng)],
            controller: draw_secret(prng),
        }
    }

    /// Returns the keys of a host that a target knows: those whose bit is set. A host authenticates
    /// with its first secret only, which is always known.
    pub(super) fn known(&self, bits: u8, has_chap: bool) -> HostKeys {
        let tls = self.tls.iter().enumerate();
        let tls = tls.filter(|(index, _)| bits & 1 << index != 0);
        let [first, second] = &self.chap;
        let chap = [second, first].into_iter().skip(usize::from(bits & 2 == 0));
        HostKeys {
            tls: tls.map(|(_, key)| key.clone()).collect(),
            chap: chap.filter(|_| has_chap).cloned().collect(),
            controller: has_chap.then(|| self.controller.clone()),
        }
    }

    /// Returns keys with which the host cannot connect: with `only_controller`, only that of the
    /// controller is wrong.
    pub(super) fn wrong(&self, prng: &mut Prng, has_chap: bool, only_controller: bool) -> HostKeys {
        let controller = has_chap.then(|| draw_secret(prng));
        if only_controller {
            return HostKeys {
                controller,
                ..self.known(3, has_chap)
            };
        }
        let tls = prng.chance(1, 2).then(|| draw(prng));
        HostKeys {
            tls: tls.into_iter().collect(),
            chap: has_chap.then(|| draw_secret(prng)).into_iter().collect(),
            controller,
        }
    }
}

/// The keys that a target knows.
#[derive(Clone, Debug)]
pub(super) struct KnownKeys {
    hosts: Vec<HostKeys>,
    /// Of the stranger.
    stranger: Option<TlsKey>,
    group: Group,
}

impl KnownKeys {
    /// The first keys of a target.
    pub(super) fn new(keys: &[OwnKeys], proofs: &Proofs) -> Self {
        let hosts = keys.iter().enumerate();
        let hosts = hosts.map(|(host, keys)| keys.known(3, proofs.has_chap(host)));
        Self {
            hosts: hosts.collect(),
            stranger: None,
            group: proofs.chap.as_ref().map_or(Group::Null, |chap| chap.group),
        }
    }

    /// Sets the known keys of a host.
    pub(super) fn set(&mut self, host: usize, keys: HostKeys) {
        self.hosts[host] = keys;
    }

    /// Sets the key of the [stranger](STRANGER).
    pub(super) fn set_stranger(&mut self, key: Option<TlsKey>) {
        self.stranger = key;
    }

    /// Returns the keys in the form of a target's configuration.
    pub(super) fn ring(&self) -> KeyRing {
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.map(|(host, keys)| (host_name(host), keys.clone()));
        let stranger = HostKeys {
            tls: self.stranger.iter().cloned().collect(),
            ..HostKeys::default()
        };
        KeyRing {
            hosts: hosts.chain([(STRANGER.to_owned(), stranger)]).collect(),
            policy: ChapPolicy {
                groups: vec![self.group],
                ..ChapPolicy::default()
            },
            ..KeyRing::default()
        }
    }
}

/// Draws a key of TLS of any kind.
pub(super) fn draw(prng: &mut Prng) -> TlsKey {
    let (hash, length) = match prng.below(4) {
        0 => (Some(Hash::Sha256), 32),
        1 => (Some(Hash::Sha384), 48),
        2 => (None, 32),
        _ => (None, 48),
    };
    TlsKey::new(hash, &bytes(prng, length)).expect("a legal length")
}

/// Draws a secret of any kind.
fn draw_secret(prng: &mut Prng) -> Secret {
    let (hash, length) = match prng.below(4) {
        0 => (Some(Hash::Sha256), 32),
        1 => (Some(Hash::Sha384), 48),
        2 => (Some(Hash::Sha512), 64),
        _ => (None, 32),
    };
    Secret::new(hash, &bytes(prng, length)).expect("a legal length")
}

fn bytes(prng: &mut Prng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    prng.fill(&mut bytes);
    bytes
}
