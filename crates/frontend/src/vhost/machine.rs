//! The machine that a server served last, which may reconnect.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;

/// The machine that a server served last, with the properties that distinguish its next connection
/// from another machine's: the record that its monitor keeps for the back end, or else its memory.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Random number that identifies the machine and the server in the record of outstanding
    /// requests.
    pub(super) number: NonZeroU32,
    /// Devices and inodes of the machine's memory files.
    pub(super) files: Vec<(u64, u64)>,
    /// Indices of its used rings when they stopped, by queue.
    pub(super) used: Vec<u16>,
}

impl Machine {
    /// A machine with no known properties.
    pub(super) fn new() -> Self {
        let number = u32::try_from(RandomState::new().hash_one(()) >> u32::BITS);
        Self {
            number: NonZeroU32::MIN | number.expect("32 bits"),
            files: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Returns true if a machine with this memory has a queue's used ring at the index where this
    /// machine left it. No other back end has then served it in between.
    pub(super) fn left(&self, files: &[(u64, u64)], queue: usize, used: u16) -> bool {
        self.files == files && self.used.get(queue) == Some(&used)
    }
}
