//! Requests to a block device, and their completions.

use base::units::Lba;
use reactor::IoSlice;
use serde::{Deserialize, Serialize};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the range into the request's data.
    Read,
    /// Writes the request's data to the range.
    Write {
        /// FUA: complete when the data is on stable storage.
        durable: bool,
    },
    /// Flushes all writes that completed before to stable storage. The range is ignored.
    Flush,
    /// Makes the range read as zeroes.
    WriteZeroes {
        /// The space may be deallocated.
        deallocate: bool,
        /// FUA: complete when the zeroes are on stable storage.
        durable: bool,
    },
    /// Deallocates the range. Afterwards it reads as zeroes, or, on storage of other systems, as
    /// any earlier content.
    Deallocate,
    /// Compares the range with the request's data; fails with [`BlockError::CompareFailure`] if
    /// they differ.
    Compare,
    /// Reads the range without returning the data.
    Verify,
}

impl Operation {
    /// Returns true if requests of this operation have data, of the length of the range.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. } | Self::Compare)
    }

    /// Returns true if the operation changes the content.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Deallocate
        )
    }
}

/// A request. The channel owns it from `submit` until its [`Completion`] is reaped.
#[derive(Debug)]
pub struct Request {
    /// Identifier of the submitter, returned with the completion.
    pub tag: u64,
    /// The operation.
    pub operation: Operation,
    /// First block of the range.
    pub lba: Lba,
    /// Blocks of the range: 1 to 2³²−1; 0 only for Flush.
    pub blocks: u32,
    /// The data, with the length of the range; `None` for operations without data.
    pub data: Option<IoSlice>,
}

impl Request {
    /// Completes the request: returns its completion with its data.
    #[must_use]
    pub fn ended(self, result: Result<(), BlockError>) -> Completion {
        let Self { tag, data, .. } = self;
        Completion { tag, result, data }
    }
}

/// The completion of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The result.
    pub result: Result<(), BlockError>,
    /// The request's data.
    pub data: Option<IoSlice>,
}

/// Counters of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoCounts {
    /// Requests submitted to the device.
    #[serde(skip)]
    pub begun: u64,
    /// Completed reads, including failed ones.
    pub reads: u64,
    /// Completed writes, including failed ones.
    pub writes: u64,
    /// Completed flushes, deallocations and writes of zeroes, including failed ones.
    pub others: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Failed requests.
    pub errors: u64,
}

impl IoCounts {
    /// Completed requests of all kinds, saturating.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        let requests = self.reads.saturating_add(self.writes);
        requests.saturating_add(self.others)
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The range exceeds the device.
    #[error("range exceeds the device")]
    OutOfRange,
    /// The data differs from the range in length, or the range is empty.
    #[error("invalid request: data and range differ in length")]
    Malformed,
    /// The device does not support this operation.
    #[error("operation not supported by the device")]
    Unsupported,
    /// The device is read-only.
    #[error("device is read-only")]
    ReadOnly,
    /// The tenant has no permission for one of the blocks.
    #[error("access denied: the tenant has no permission for one of the blocks")]
    Denied,
    /// No space left for a thinly provisioned device.
    #[error("no space left on the device")]
    NoSpace,
    /// Unrecovered read error of the medium.
    #[error("unrecovered read error")]
    ReadFailure,
    /// Write fault of the medium.
    #[error("write fault")]
    WriteFailure,
    /// Reported by Flush: the device's volatile cache was lost, so acknowledged writes before this
    /// Flush may be lost. Later flushes cover later writes.
    #[error("acknowledged writes since the last flush may be lost: the target restarted")]
    CacheLost,
    /// The compared data differs.
    #[error("compared data differs")]
    CompareFailure,
    /// Read data differs from written data.
    #[error("data mismatch: read data differs from written data")]
    Corrupt,
    /// The request was cancelled; it is unknown whether it took effect.
    #[error("request aborted")]
    Aborted,
    /// The device is no longer available.
    #[error("device no longer available")]
    Gone,
    /// The device did not respond in time.
    #[error("device timed out")]
    TimedOut,
    /// Any other internal error of the device.
    #[error("internal device error")]
    Internal,
}
