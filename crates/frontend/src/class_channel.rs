//! The channel of one class of a core's requests.

use block::{BlockError, Channel, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;

/// The way to the device for one class.
#[derive(Debug)]
pub(crate) struct ClassChannel {
    pub(crate) channel: Box<dyn Channel>,
    /// Pieces that wait for room in the channel.
    pub(crate) unsent: VecDeque<Request>,
    /// Pieces in the channel.
    pub(crate) in_flight: usize,
    pub(crate) submitted: bool,
}

/// Stands for the channel of a class that shares that of another one.
#[derive(Debug)]
pub(crate) struct NoChannel;

impl Channel for NoChannel {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        Submit::Done(request.ended(Err(BlockError::Gone)))
    }
}
