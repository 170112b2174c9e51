//! Commands over many extents: a table of memory, addresses and lengths, which a device carries out
//! as one command with one completion. `[Yu §4.3, §5.2]`
//!
//! The extents of a command ascend and do not overlap, so that their order says nothing. Each has a
//! result of its own; a command whose check fails touches none of them.

use crate::device::{Capabilities, Geometry, check};
use crate::request::{BlockError, Operation, Request};
use base::units::Lba;
use reactor::IoSlice;

/// One entry of the table.
#[derive(Debug)]
pub struct Extent {
    /// The submitter's name for it; the device only carries it.
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

/// A command over several extents. A channel owns it from
/// [`submit_extents`](crate::Channel::submit_extents) until it is reaped.
#[derive(Debug)]
pub struct Extents {
    /// The submitter's name for it; comes back with it.
    pub tag: u64,
    /// [`Operation::Read`] or [`Operation::Write`], for all extents alike.
    pub operation: Operation,
    /// The extents in ascending order, none of which overlap: 1 to
    /// [`Capabilities::extents_max`].
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

    /// The total length of the extents, in blocks (saturating).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let blocks = self.extents.iter().map(|extent| u64::from(extent.blocks));
        blocks.fold(0, u64::saturating_add)
    }
}

/// The answer to a submitted command over extents.
#[derive(Debug)]
pub enum SubmitExtents {
    /// The command is done already.
    Done(Extents),
    /// It will be reaped by [`reap_extents`](crate::Channel::reap_extents).
    Queued,
    /// The channel has no room for it now; submit it again after the next completion.
    Busy(Extents),
}

/// Checks every extent of a command, before any is touched.
///
/// # Errors
/// [`BlockError::Malformed`] for an operation other than Read and Write, for no extent or more than
/// [`Capabilities::extents_max`], and for extents that overlap or do not ascend; for each extent as
/// [`check`].
pub fn check_extents(
    command: &mut Extents,
    geometry: Geometry,
    capabilities: Capabilities,
) -> Result<(), BlockError> {
    let moves = matches!(command.operation, Operation::Read | Operation::Write { .. });
    let count = command.extents.len();
    if !moves || count == 0 || count > capabilities.extents_max as usize {
        return Err(BlockError::Malformed);
    }
    let mut end = 0;
    for (index, extent) in command.extents.iter_mut().enumerate() {
        let request = Request {
            tag: extent.tag,
            operation: command.operation,
            lba: extent.lba,
            blocks: extent.blocks,
            data: extent.data.take(),
        };
        let checked = check(&request, geometry, capabilities);
        extent.data = request.data;
        checked?;
        if index > 0 && extent.lba.0 < end {
            return Err(BlockError::Malformed);
        }
        end = extent.lba.0 + u64::from(extent.blocks);
    }
    Ok(())
}
