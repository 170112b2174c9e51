//! Commands of tenants: those that wait for tokens, and those that are done.

use crate::request::Ticket;
use base::Nanos;
use qos::PricedOperation;

/// A command that waits for its tokens, and what for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priced {
    pub(crate) operation: PricedOperation,
    pub(crate) units: u32,
    pub(crate) ticket: Ticket,
}

/// The tenant was removed: its connections are about to have another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// A command that is through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) operation: PricedOperation,
    pub(crate) success: bool,
    pub(crate) bytes: u64,
    /// From its dispatch to its answer.
    pub(crate) took: Nanos,
    /// Of that, in the device; `None` where it never got there.
    pub(crate) device: Option<Nanos>,
}

/// Lateness of reads with a promised latency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// Thousandths of reads that were late.
    pub(super) late: u64,
    /// Thousandths of reads that may be.
    pub(super) allowed: u64,
}

impl Lateness {
    /// A read is done, of which `allowed` in a thousand may be late.
    #[inline]
    pub(super) fn count(&mut self, late: bool, allowed: u32) {
        self.late += 1000 * u64::from(late);
        self.allowed += u64::from(allowed);
    }

    pub(super) const fn is_too_much(self) -> bool {
        self.late > self.allowed
    }
}
