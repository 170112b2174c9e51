//! Outcomes of admin and Fabrics commands.

use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::limits::Limits;
use crate::shared::Shared;
use base::Time;
use std::sync::Arc;

/// The parts of its target and its core that a controller reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) shared: &'a Shared,
    pub(crate) now: Time,
}

/// Outcome of an admin or Fabrics command that succeeds.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Answer with these dwords 0 and 1, and the data in the slot's buffer.
    Data(u64),
    /// Answer with these dwords 0 and 1, without data.
    Bare(u64),
    /// No answer yet: the request waits in the controller, without a slot.
    AwaitEvent,
    /// Answer, after the Asynchronous Event Request with this identifier was aborted.
    EventAborted(u16),
    /// Answer after this command was aborted, or could not be.
    Abort { queue: ConnectionPlace, cid: u16 },
    /// Answer when nothing of this controller can change data any more.
    EndController(Arc<SharedController>),
    /// Answer after the I/O queues of this controller were told to end: it was disabled or shut down.
    EndQueues(Arc<SharedController>),
    /// The same, after the volatile caches of all namespaces were flushed.
    Flush(Arc<SharedController>),
    /// Let the connection drain, and answer last of all.
    Disconnect,
}
