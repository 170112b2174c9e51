//! Amounts in the dimensions of placement.

use crate::tokens::TokenRate;

/// The three dimensions of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Bytes stored.
    pub bytes: u64,
    /// Tokens per second.
    pub tokens: TokenRate,
    /// Bytes per second over the network, in both directions together.
    pub bandwidth: u64,
}

impl Amounts {
    /// Returns the sum (saturating).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            tokens: self.tokens + other.tokens,
            bandwidth: self.bandwidth.saturating_add(other.bandwidth),
        }
    }

    /// Returns the difference; zero where `other` is larger.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            tokens: self.tokens - other.tokens,
            bandwidth: self.bandwidth.saturating_sub(other.bandwidth),
        }
    }

    /// Returns each amount as parts per million of `whole`, rounded down.
    #[must_use]
    pub fn ppm(self, whole: Self) -> [u64; 3] {
        [
            ppm(self.bytes, whole.bytes),
            ppm(self.tokens.0, whole.tokens.0),
            ppm(self.bandwidth, whole.bandwidth),
        ]
    }
}

/// Returns `part` as parts per million of `whole`, rounded down; a `whole` of zero counts as 1.
pub(super) fn ppm(part: u64, whole: u64) -> u64 {
    let ppm = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
    u64::try_from(ppm).unwrap_or(u64::MAX)
}
