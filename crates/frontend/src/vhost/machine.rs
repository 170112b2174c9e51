//! The machine that a server served last, which may come back.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;

/// The machine that a server served last, as far as its next connection can be told from another
/// machine's: by what its monitor keeps for the back end, or else by its memory.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Names it, and the server with it, in the record of its requests under way; drawn.
    pub(super) number: NonZeroU32,
    /// Devices and inodes of the files of its memory.
    pub(super) files: Vec<(u64, u64)>,
    /// Indices of its used rings when they stopped, by queue.
    pub(super) used: Vec<u16>,
}

impl Machine {
    /// A machine of which nothing is known yet.
    pub(super) fn new() -> Self {
        let number = u32::try_from(RandomState::new().hash_one(()) >> u32::BITS);
        Self {
            number: NonZeroU32::MIN | number.expect("32 bits"),
            files: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Returns true if a machine with this memory has the used ring of a queue at this index just as
    /// this one left it, so that no other back end served it in between.
    pub(super) fn left(&self, files: &[(u64, u64)], queue: usize, used: u16) -> bool {
        self.files == files && self.used.get(queue) == Some(&used)
    }
}
