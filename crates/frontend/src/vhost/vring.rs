//! A virtqueue between front end and core.

use std::fs::File;
use std::sync::Arc;

/// One virtqueue, as configured by the front end.
#[derive(Debug, Default)]
pub(super) struct Vring {
    pub(super) entries: u16,
    /// Addresses of the descriptors, the available and the used ring, in the front end's address
    /// space.
    pub(super) addresses: Option<[u64; 3]>,
    /// Index of the next chain.
    pub(super) base: u16,
    /// Heads of earlier chains that were not completed when the queue stopped.
    pub(super) unfinished: Vec<u16>,
    pub(super) kick: Option<Arc<File>>,
    pub(super) call: Option<File>,
    pub(super) error: Option<File>,
    /// The front end has started it by setting its event counter.
    pub(super) started: bool,
    pub(super) enabled: bool,
    /// A core serves it.
    pub(super) runs: bool,
    /// A core has served it.
    pub(super) served: bool,
}

impl Vring {
    /// Index of the used ring when the queue stopped.
    pub(super) fn used(&self) -> u16 {
        let unfinished = u16::try_from(self.unfinished.len()).expect("at most the entries");
        self.base.wrapping_sub(unfinished)
    }
}
