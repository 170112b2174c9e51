//! Makes a device slower: every completion is held back for a time that depends on the request.
//!
//! The request is passed down at once and its completion waits. So a delay adds to the device's own
//! time, and requests are delayed concurrently, not one after the other.

use super::below::{Ended, Layer, LayerDevice};
use crate::device::Device;
use crate::request::{BlockError, Completion, Operation, Request};
use base::{Nanos, Time};
use reactor::Driver;
use std::sync::Arc;

/// Durations for which requests are held back. Zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayOptions {
    /// Delay of each request that reads (Read, Compare, Verify).
    pub read: Nanos,
    /// Additional delay for each KiB of its range, rounded up.
    pub read_per_kib: Nanos,
    /// Delay of each request that changes content (Write, Write Zeroes, Deallocate).
    pub write: Nanos,
    /// Additional delay for each KiB of its range, rounded up. Not for Write Zeroes and Deallocate,
    /// which move no data.
    pub write_per_kib: Nanos,
    /// Delay of each Flush.
    pub flush: Nanos,
}

impl DelayOptions {
    /// Returns the time for which a request is held back.
    fn of(&self, request: &Request, block_bytes: u32) -> Nanos {
        let kib = (u64::from(request.blocks) * u64::from(block_bytes)).div_ceil(1024);
        let sum = |fixed: Nanos, per_kib: Nanos| fixed + Nanos(per_kib.0.saturating_mul(kib));
        match request.operation {
            Operation::Read | Operation::Compare | Operation::Verify => {
                sum(self.read, self.read_per_kib)
            }
            Operation::Write { .. } => sum(self.write, self.write_per_kib),
            Operation::WriteZeroes { .. } | Operation::Deallocate => self.write,
            Operation::Flush => self.flush,
        }
    }
}

/// A device that takes longer.
#[derive(Debug)]
pub struct Delay {
    inner: Arc<dyn Device>,
    options: DelayOptions,
}

impl Delay {
    /// `inner`, slower by `options`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, options: DelayOptions) -> Self {
        Self { inner, options }
    }
}

impl LayerDevice for Delay {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    type Layer = DelayLayer;

    fn layer(&self, _: &mut dyn Driver) -> DelayLayer {
        DelayLayer {
            options: self.options,
            block_bytes: self.geometry().block_bytes,
            closing: false,
        }
    }
}

/// The state of the layer in one core's channel.
#[derive(Debug)]
pub(super) struct DelayLayer {
    options: DelayOptions,
    block_bytes: u32,
    closing: bool,
}

impl Layer for DelayLayer {
    type Note = Nanos;

    fn begin(&mut self, request: &mut Request) -> Result<Nanos, BlockError> {
        if self.closing {
            return Err(BlockError::Aborted);
        }
        Ok(self.options.of(request, self.block_bytes))
    }

    fn undo(&mut self, _: Nanos, _: &mut Request) {}

    fn end(&mut self, delay: Nanos, completion: Completion, now: Time) -> Ended {
        // A refused request took no time on the medium.
        if delay == Nanos::ZERO || completion.result.is_err() || self.closing {
            Ended::Now(completion)
        } else {
            Ended::At(now + delay, completion)
        }
    }

    fn close(&mut self) {
        self.closing = true;
    }
}
