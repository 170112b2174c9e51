//! Counts of what a network did.

/// Totals of the network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkTotals {
    /// Bytes that were handed to it.
    pub bytes: u64,
    /// Connections that it cut on its own.
    pub cuts: u64,
    /// Connections that were broken with these, or by a crash.
    pub severed: u64,
    /// Bits that it flipped.
    pub flips: u64,
    /// Sends of liars that it changed.
    pub lies: u64,
    /// Connects that it refused.
    pub refusals: u64,
    /// Sends that it took in part.
    pub partial: u64,
}

impl NetworkTotals {
    /// Faults by their kind.
    pub(crate) const fn faults(&self) -> [(&'static str, u64); 6] {
        [
            ("cuts", self.cuts),
            ("severed connections", self.severed),
            ("refused connects", self.refusals),
            ("flipped bits", self.flips),
            ("lies", self.lies),
            ("partial sends", self.partial),
        ]
    }
}
