//! Admin and Fabrics commands: their data, and their outcomes.

use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::limits::Limits;
use crate::reservation::state::Request;
use crate::shared::Shared;
use base::Time;
use std::sync::Arc;
use wire::nvme::{Command, DataDirection, DataPointer, Status};

/// The parts of the target and its core that a controller reads.
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
    /// Answer after this command was aborted or could not be.
    Abort { queue: ConnectionPlace, cid: u16 },
    /// Answer when nothing of this controller can change data any more.
    EndController(Arc<SharedController>),
    /// Answer after the I/O queues of this controller, which was disabled or shut down, began to
    /// end.
    EndQueues(Arc<SharedController>),
    /// Like [`EndQueues`](Self::EndQueues), after the volatile caches of all namespaces were
    /// flushed.
    Flush(Arc<SharedController>),
    /// Answer when registrations or the reservation of a namespace, or of all, have changed.
    Reserve { nsid: u32, request: Request },
    /// Answer when the authentication of the queue continues.
    AwaitAuthentication,
    /// Drain the connection, and answer last.
    Disconnect,
}

/// Returns the direction of a command's data; no supported command transfers in both directions.
pub(crate) fn direction(command: &Command) -> DataDirection {
    let code = if command.is_fabrics() {
        command.fabrics_type().0
    } else {
        command.opcode()
    };
    match DataDirection::of(code) {
        DataDirection::Both => DataDirection::None,
        one => one,
    }
}

/// Returns the location of a command's data. Hosts leave the descriptor all zero if no data is
/// transferred; for Get and Set Features, the opcode does not determine that.
pub(crate) fn pointer(command: &Command, direction: DataDirection) -> Result<DataPointer, Status> {
    if direction == DataDirection::None || command.sgl().is_zero() {
        return Ok(DataPointer::Transport { length: 0 });
    }
    command.data_pointer()
}
