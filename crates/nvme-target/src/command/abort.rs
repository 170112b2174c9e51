//! Taking commands back that have not reached their device.

use crate::command::{barrier, finish, parts, tokens};
use crate::request::{Kind, Phase, Ticket};
use crate::service::core::CoreState;
use crate::session::connection::{Connection, State};
use base::mutation::{self, Mutation};
use block::{Operation, Request};
use reactor::Context;
use wire::nvme::Status;

/// Aborts a command that has not reached the device. False when it is too late, or unknown.
/// `[NVMe Base 2.0 §5.1]`
pub(crate) fn abort(
    connection: &mut Connection,
    cid: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> bool {
    if connection.state > State::Draining {
        return false;
    }
    let Some(slot) = connection.qpair.find(cid) else {
        return false;
    };
    let entry = connection.qpair.slot(slot);
    let (phase, nsid, kind) = (entry.phase, entry.nsid, entry.kind);
    let waits = match phase {
        Phase::WaitingForNamespace | Phase::WaitingForBuffer | Phase::WaitingForBarrier => true,
        Phase::WaitingForTokens => tokens::give_up(connection, slot, core),
        Phase::Executing if kind == Kind::Dataset => {
            // The pieces that the device has come to their end, and no more are begun.
            let open = entry.parts > 0 && parts::dataset_is_open(entry);
            if open {
                entry.status = Some(Status::ABORTED_BY_REQUEST);
            }
            return open;
        }
        Phase::Executing => {
            let tag = Ticket {
                connection: connection.key,
                slot,
            }
            .tag();
            take_busy(connection.subsystem, nsid, tag, core)
                || mutation::active(Mutation::AbortFreesSlot)
        }
        _ => false,
    };
    if waits && kind == Kind::Barrier {
        barrier::withdraw(connection.key, slot, core);
    }
    if waits {
        finish(connection, slot, Status::ABORTED_BY_REQUEST, core, cx);
    }
    waits
}

/// Takes back a request that its device had no room for.
fn take_busy(subsystem: u32, nsid: u32, tag: u64, core: &mut CoreState) -> bool {
    let Some(namespace) = core.namespace(subsystem, nsid) else {
        return false;
    };
    let whole = |request: &Request| {
        request.tag == tag && !matches!(request.operation, Operation::Deallocate | Operation::Flush)
    };
    namespace.busy.remove(whole)
}
