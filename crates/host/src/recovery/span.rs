//! A range of blocks of a namespace.

/// A range of blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) nsid: u32,
    pub(crate) start: u64,
    /// The first block after the range.
    pub(crate) end: u64,
}

impl Span {
    /// Returns true if both have a block in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.nsid == other.nsid && self.start < other.end && other.start < self.end
    }
}
