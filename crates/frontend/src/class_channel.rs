//! The channel of one class on a core.

use block::{BlockError, Channel, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;

/// The channel to the device for one class.
#[derive(Debug)]
pub(crate) struct ClassChannel {
    pub(crate) channel: Box<dyn Channel>,
    /// Pieces waiting for room in the channel.
    pub(crate) unsent: VecDeque<Request>,
    /// Number of pieces in the channel.
    pub(crate) in_flight: usize,
    pub(crate) submitted: bool,
}

/// Placeholder of a class that shares another class's channel.
#[derive(Debug)]
pub(crate) struct NoChannel;

impl Channel for NoChannel {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        Submit::Done(request.ended(Err(BlockError::Gone)))
    }
}
