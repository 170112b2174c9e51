//! The values of `[limits]`, by key.

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use target::limits::{LIMITS, LIMITS_COUNT, Limit};

/// Limits of earlier versions, which are ignored with a warning.
pub const REMOVED_LIMITS: [&str; 4] = [
    "stash_bytes",
    "barrier_timeout_ms",
    "barriers_per_address",
    "barrier_held_bytes",
];

/// The limits of a target: a value for each of [`LIMITS`], in its order. Unchecked: a value may lie
/// outside of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits([u64; LIMITS_COUNT]);

impl Default for Limits {
    fn default() -> Self {
        Self(LIMITS.each_ref().map(Limit::default))
    }
}

impl Limits {
    /// Returns the value of a key of [`LIMITS`].
    ///
    /// # Panics
    /// For any other key.
    #[must_use]
    pub fn get(&self, key: &str) -> u64 {
        self.0[place(key).expect("a key of LIMITS")]
    }

    /// Sets the value of a key, unchecked.
    ///
    /// # Panics
    /// For a key that is not one of [`LIMITS`].
    pub fn set(&mut self, key: &str, value: u64) {
        self.0[place(key).expect("a key of LIMITS")] = value;
    }

    /// Returns the limits as the target takes them, where every value lies in its range.
    #[must_use]
    pub fn for_target(&self) -> target::Limits {
        let mut limits = target::Limits::default();
        for (limit, value) in self.iter() {
            limit.set(&mut limits, value);
        }
        limits
    }

    /// Returns each limit with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Limit, u64)> {
        LIMITS.iter().zip(self.0)
    }
}

fn place(key: &str) -> Option<usize> {
    LIMITS.iter().position(|limit| limit.key == key)
}

impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(LIMITS_COUNT))?;
        for (limit, value) in self.iter() {
            map.serialize_entry(limit.key, &value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::read_value(deserializer)
    }
}
