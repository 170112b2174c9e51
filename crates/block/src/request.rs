//! Requests to a device, and their completions.

use base::units::Lba;
use reactor::IoSlice;
use serde::{Deserialize, Serialize};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills the request's data from the range.
    Read,
    /// Stores the request's data in the range.
    Write {
        /// Complete only once the data is on stable storage (FUA).
        durable: bool,
    },
    /// Puts every write that completed before on stable storage. The range is ignored.
    Flush,
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// The space may be given back.
        deallocate: bool,
        /// Complete only once the zeroes are on stable storage (FUA).
        durable: bool,
    },
    /// The content of the range is no longer needed. Afterwards it reads as zeroes, or, where
    /// another system serves the device, as what was written to it at any time before.
    Deallocate,
    /// Fails with [`BlockError::CompareFailure`] where the range differs from the request's data.
    Compare,
    /// Reads the range without handing the data out.
    Verify,
}

impl Operation {
    /// Returns true if the operation carries data in the request: as many bytes as the range has.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. } | Self::Compare)
    }

    /// Returns true if the operation changes the content of the device.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Deallocate
        )
    }
}

/// One request. A channel owns it from `submit` until its [`Completion`] is reaped.
#[derive(Debug)]
pub struct Request {
    /// The submitter's name for it; comes back with the completion.
    pub tag: u64,
    /// The operation.
    pub operation: Operation,
    /// First block of the range.
    pub lba: Lba,
    /// Blocks in the range: 1 to 2³²−1 (0 only for Flush).
    pub blocks: u32,
    /// The data, exactly as long as the range, for operations that have some.
    pub data: Option<IoSlice>,
}

impl Request {
    /// Ends the request: its completion, with its data.
    #[must_use]
    pub fn ended(self, result: Result<(), BlockError>) -> Completion {
        let Self { tag, data, .. } = self;
        Completion { tag, result, data }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The result.
    pub result: Result<(), BlockError>,
    /// The request's data, handed back.
    pub data: Option<IoSlice>,
}

/// Requests since the start: those that were begun, and those that are finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoCounts {
    /// Requests that the device was given.
    #[serde(skip)]
    pub begun: u64,
    /// Reads, with any result.
    pub reads: u64,
    /// Writes, with any result.
    pub writes: u64,
    /// Flushes, deallocations and writes of zeroes, with any result.
    pub others: u64,
    /// Bytes of reads that succeeded.
    pub read_bytes: u64,
    /// Bytes of writes that succeeded.
    pub written_bytes: u64,
    /// Requests that failed.
    pub errors: u64,
}

impl IoCounts {
    /// Finished requests of all kinds (saturating).
    #[must_use]
    pub const fn requests(&self) -> u64 {
        let requests = self.reads.saturating_add(self.writes);
        requests.saturating_add(self.others)
    }
}

/// The reason for which a device did not carry a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The range does not lie within the device.
    #[error("range beyond the end of the device")]
    OutOfRange,
    /// The data does not match the range, or the range is empty.
    #[error("request malformed: data and range do not match")]
    Malformed,
    /// The device cannot do this operation.
    #[error("operation not supported by the device")]
    Unsupported,
    /// The device may not be written.
    #[error("device is read-only")]
    ReadOnly,
    /// The tenant may not do this to one of the blocks.
    #[error("access denied: the target does not permit this for one of the blocks")]
    Denied,
    /// The space behind a thinly provisioned device is used up.
    #[error("no space left behind the device")]
    NoSpace,
    /// Data could not be read from the medium.
    #[error("unrecovered read error")]
    ReadFailure,
    /// Data could not be written to the medium.
    #[error("write fault")]
    WriteFailure,
    /// Writes may be lost that were acknowledged, and that this Flush was to put onto the medium:
    /// the device's cache was lost before. Later flushes speak of later writes.
    #[error("writes that were acknowledged but not flushed may be lost: the target restarted")]
    CacheLost,
    /// The compared data differs.
    #[error("compared data differs")]
    CompareFailure,
    /// The data that was read differs from what had been written.
    #[error("data read back differs from what was written")]
    Corrupt,
    /// The request was given up before it took effect, or it is unknown whether it did.
    #[error("request aborted")]
    Aborted,
    /// The device went away.
    #[error("device is gone")]
    Gone,
    /// The device did not answer in time.
    #[error("device timed out")]
    TimedOut,
    /// Anything else that went wrong inside of the device.
    #[error("internal device error")]
    Internal,
}
