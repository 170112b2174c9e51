//! The target's side: which key a host uses, from its ClientHello.

use super::error::TlsError;
use base::Nanos;
use base::mutation::{self, Mutation};
use secure::psk::{Identity, offers};
use secure::record::Alert;
use secure::{ClientHello, KeyRing, Psk};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum identities of a ClientHello that are looked up: each costs some derivations.
const OFFERS_MAX: usize = 8;

/// Maximum characters of a peer's identity in a message.
const SHOWN_MAX: usize = 512;

/// Hosts that a message names.
const SHOWN_HOSTS: usize = 4;

/// Keys of hosts that may change while a target runs; each handshake uses the current ones.
#[derive(Debug, Default)]
pub struct Keys(Mutex<Arc<KeyRing>>);

impl Keys {
    /// Creates it with the first keys.
    #[must_use]
    pub fn new(keys: KeyRing) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Arc::new(keys))))
    }

    /// Replaces all keys.
    pub fn replace(&self, mut keys: KeyRing) {
        if mutation::active(Mutation::TlsKeyKept) {
            for (host, its) in &self.current().hosts {
                let kept = keys.hosts.entry(host.clone()).or_default();
                kept.tls.extend_from_slice(&its.tls);
            }
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Returns the current keys.
    #[must_use]
    pub fn current(&self) -> Arc<KeyRing> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// TLS of a listener.
#[derive(Debug)]
pub struct Server {
    required: bool,
    timeout: Nanos,
    keys: Arc<Keys>,
}

impl Server {
    /// Creates the target's side. Unless TLS is `required`, hosts may connect without it. A
    /// handshake ends after `timeout`.
    #[must_use]
    pub fn new(required: bool, timeout: Nanos, keys: Arc<Keys>) -> Arc<Self> {
        Arc::new(Self {
            required,
            timeout,
            keys,
        })
    }

    /// Returns true if hosts must use TLS.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        self.required
    }

    /// The time for a handshake.
    #[must_use]
    pub const fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// Finds the key that the host proves to have.
    ///
    /// # Errors
    /// What is wrong, and the alert that tells the host.
    pub(super) fn choose(&self, hello: &ClientHello) -> Result<Psk, (TlsError, Alert)> {
        let keys = self.keys.current();
        let mut worst = Mismatch::None;
        for offer in hello.offers.iter().take(OFFERS_MAX) {
            let mut found = Mismatch::Host(shown(&offer.identity));
            if let Ok(identity) = Identity::parse(&offer.identity) {
                let its = keys.tls(identity.hostnqn);
                if !its.is_empty() {
                    found = Mismatch::Hash(shown(&offer.identity), identity.hostnqn.to_owned());
                }
                for key in its.iter().filter(|key| key.suite_hash() == identity.hash) {
                    if !hello.offers_suite(identity.hash) {
                        found = Mismatch::Suite(shown(&offer.identity));
                        continue;
                    }
                    if offer.binder.len() != identity.hash.bytes() {
                        found = Mismatch::Binder(shown(&offer.identity));
                        continue;
                    }
                    let mut psks = offers(key, identity.hostnqn, identity.subnqn);
                    psks.retain(|psk| psk.identity.as_bytes() == offer.identity);
                    // Version 1 names the key; then the library would not know another one.
                    let is_known = !psks.is_empty();
                    let fits = |psk: &Psk| hello.binder_matches(offer, psk);
                    if let Some(psk) = psks.into_iter().find(fits) {
                        return Ok(psk);
                    }
                    if !matches!(found, Mismatch::Key(_, true)) {
                        found = Mismatch::Key(shown(&offer.identity), is_known);
                    }
                }
            }
            worst = worst.nearer(found);
        }
        Err(worst.into_error(&keys))
    }
}

/// Why no key fits, farthest first.
#[derive(Debug)]
enum Mismatch {
    None,
    /// No key for the host.
    Host(String),
    /// Keys, but for another hash function.
    Hash(String, String),
    Suite(String),
    /// A binder of another hash function.
    Binder(String),
    /// Another key; true if it has the same identity.
    Key(String, bool),
}

impl Mismatch {
    const fn rank(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Host(_) => 1,
            Self::Hash(..) => 2,
            Self::Suite(_) => 3,
            Self::Binder(_) => 4,
            Self::Key(..) => 5,
        }
    }

    fn nearer(self, other: Self) -> Self {
        if other.rank() > self.rank() {
            other
        } else {
            self
        }
    }

    /// Returns the error and its alert. `[RFC 8446 §4.2.11, §6.2]`
    fn into_error(self, keys: &KeyRing) -> (TlsError, Alert) {
        match self {
            Self::None => (TlsError::NoPsk, Alert::HANDSHAKE_FAILURE),
            Self::Host(offered) => {
                let known = known_hosts(keys);
                let error = TlsError::UnknownHost { offered, known };
                (error, Alert::UNKNOWN_PSK_IDENTITY)
            }
            Self::Hash(offered, host) => {
                let hashes = keys.tls(&host).iter();
                let hashes: BTreeSet<_> = hashes.map(|key| key.suite_hash().name()).collect();
                let known = hashes.into_iter().collect::<Vec<_>>().join(", ");
                let error = TlsError::WrongHash { offered, known };
                (error, Alert::UNKNOWN_PSK_IDENTITY)
            }
            Self::Suite(offered) => (TlsError::NoSuite { offered }, Alert::HANDSHAKE_FAILURE),
            Self::Binder(offered) => (TlsError::OtherBinder { offered }, Alert::DECRYPT_ERROR),
            Self::Key(offered, is_known) => {
                let alert = if is_known {
                    Alert::DECRYPT_ERROR
                } else {
                    Alert::UNKNOWN_PSK_IDENTITY
                };
                (TlsError::WrongKey { offered }, alert)
            }
        }
    }
}

/// Names some hosts with keys.
fn known_hosts(keys: &KeyRing) -> String {
    let with_keys = || keys.hosts.iter().filter(|(_, keys)| !keys.tls.is_empty());
    let mut names: Vec<_> = with_keys()
        .map(|(name, _)| name.as_str())
        .take(SHOWN_HOSTS)
        .collect();
    let more = format!("{} more", with_keys().count().saturating_sub(names.len()));
    if !more.starts_with("0 ") {
        names.push(&more);
    }
    if names.is_empty() {
        names.push("none");
    }
    names.join(", ")
}

/// Returns an identity for a message: printable, bounded, and without the digest, which is derived
/// from the key.
pub(super) fn shown(identity: &[u8]) -> String {
    let without = match Identity::parse(identity) {
        Ok(Identity {
            digest: Some(digest),
            ..
        }) => &identity[..identity.len() - digest.len() - 1],
        _ => identity,
    };
    let without = &without[..without.len().min(SHOWN_MAX)];
    without.escape_ascii().to_string()
}
