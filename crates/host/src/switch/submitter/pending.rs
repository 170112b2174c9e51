//! A request that a submitter has put into the ingress and that is not answered.

use crate::recovery::span::Span;
use reactor::IoSlice;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) tag: u64,
    /// Data that it was submitted with.
    pub(super) data: Option<IoSlice>,
    /// The place in the channel's memory that stands for its data, if it came with other memory.
    pub(super) bounce: Option<u32>,
    /// The data has to be copied back from there.
    pub(super) reads: bool,
    /// Of a Flush: the losses of the target's cache that had been reported when it was submitted.
    pub(super) reported: Option<u32>,
    /// The blocks that it writes.
    pub(super) written: Option<Span>,
}
