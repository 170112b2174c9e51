//! Proofs of hosts' names: those that hosts gave, and those that they have to give.
//!
//! A host claims its name in Connect. TLS proves it before, DH-HMAC-CHAP after.

pub(crate) mod attempts;
pub(crate) mod exchange;
pub(crate) mod jobs;
pub(crate) mod standing;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Proofs of a host's name, given or required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The connection uses TLS with a key of the host. `[NVMe-TCP 1.1 §3.6.1]`
    pub tls: bool,
    /// DH-HMAC-CHAP with a secret of the host. `[NVMe Base 2.0 §8.13]`
    pub chap: bool,
}

impl Authentication {
    /// The words of all combinations.
    const WORDS: [(&'static str, Self); 4] = [
        ("claimed", Self::of(false, false)),
        ("tls", Self::of(true, false)),
        ("chap", Self::of(false, true)),
        ("chap+tls", Self::of(true, true)),
    ];

    const fn of(tls: bool, chap: bool) -> Self {
        Self { tls, chap }
    }

    /// Returns the proofs of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::of(self.tls || other.tls, self.chap || other.chap)
    }

    /// Returns those of these proofs that are not among `given`.
    #[must_use]
    pub const fn without(self, given: Self) -> Self {
        Self::of(self.tls && !given.tls, self.chap && !given.chap)
    }

    /// Returns true if there is none.
    #[must_use]
    pub const fn is_none(self) -> bool {
        !self.tls && !self.chap
    }

    /// Returns the word for a name with these proofs: "claimed" without any.
    #[must_use]
    pub fn word(self) -> &'static str {
        let mut words = Self::WORDS.iter();
        let found = words.find(|(_, proofs)| *proofs == self);
        found.map_or("claimed", |(word, _)| word)
    }
}

impl fmt::Display for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for Authentication {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Authentication {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut words = Self::WORDS.iter();
        let found = words.find(|(word, _)| *word == text);
        // A later program may know more proofs.
        Ok(found.map_or_else(Self::default, |(_, proofs)| *proofs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_missing_until_they_are_given() {
        let [none, tls, chap, both] = Authentication::WORDS.map(|(_, proofs)| proofs);
        assert_eq!(tls.and(chap), both);
        assert_eq!(both.without(tls), chap);
        assert!(tls.without(both).is_none() && none.without(none).is_none());
        assert!(!chap.without(tls).is_none());
        assert_eq!(both.to_string(), "chap+tls");
    }
}
