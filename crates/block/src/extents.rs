//! Commands over several extents: a table of memory, addresses and lengths, which a device executes
//! as one command with one completion. `[Yu §4.3, §5.2]`
//!
//! The extents of a command ascend and do not overlap, so their order has no meaning. Each has its
//! own result; a command that fails its check changes none of them.

use crate::request::{BlockError, Operation, Request};
use base::units::Lba;
use reactor::IoSlice;

/// One entry of the table.
#[derive(Debug)]
pub struct Extent {
    /// The submitter's tag; the device returns it unchanged.
    pub tag: u64,
    /// First block of the range.
    pub lba: Lba,
    /// Blocks in the range: at least 1.
    pub blocks: u32,
    /// The data, exactly as long as the range.
    pub data: Option<IoSlice>,
    /// The result, when the command is complete; `Ok` until then.
    pub result: Result<(), BlockError>,
}

impl Extent {
    /// Returns a request for this extent, which takes its data.
    #[must_use]
    pub fn request(&mut self, operation: Operation) -> Request {
        Request {
            tag: self.tag,
            operation,
            lba: self.lba,
            blocks: self.blocks,
            data: self.data.take(),
        }
    }
}

/// A command over several extents. A channel owns it from
/// [`submit_extents`](crate::Channel::submit_extents) until it is reaped.
#[derive(Debug)]
pub struct Extents {
    /// The submitter's tag, returned with the command.
    pub tag: u64,
    /// [`Operation::Read`] or [`Operation::Write`], for all extents.
    pub operation: Operation,
    /// The extents, ascending and not overlapping: 1 to
    /// [`Capabilities::extents_max`](crate::Capabilities::extents_max).
    pub extents: Vec<Extent>,
}

impl Extents {
    /// Ends the command with one result for all extents.
    #[must_use]
    pub fn ended(mut self, result: Result<(), BlockError>) -> Self {
        for extent in &mut self.extents {
            extent.result = result;
        }
        self
    }

    /// Returns the total length of the extents in blocks (saturating).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let blocks = self.extents.iter().map(|extent| u64::from(extent.blocks));
        blocks.fold(0, u64::saturating_add)
    }
}
