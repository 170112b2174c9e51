//! Event counts of a network.

/// Totals of the network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkTotals {
    /// Bytes sent.
    pub bytes: u64,
    /// Connections cut by a fault of their own.
    pub cuts: u64,
    /// Connections broken together with these, or by a crash.
    pub severed: u64,
    /// Flipped bits.
    pub flips: u64,
    /// Sends changed by protocol-violating hosts or targets.
    pub lies: u64,
    /// Refused connects.
    pub refusals: u64,
    /// Sends taken in part.
    pub partial: u64,
}

impl NetworkTotals {
    /// Returns the faults by kind.
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
