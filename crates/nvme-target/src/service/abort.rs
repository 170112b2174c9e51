//! Aborts of commands that wait. `[NVMe Base 2.0 §5.1]`

use crate::command::dataset;
use crate::request::{CommandState, Ticket};
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::requests::finish;
use base::mutation::{self, Mutation};
use reactor::Context;
use wire::nvme::Status;

/// Outcome of an attempt to abort a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// The command was answered as aborted.
    Yes,
    /// It is too late, or there is no such command.
    No,
    /// The command begins no further piece, and is answered as aborted when the device has returned
    /// the pieces that it has.
    AtEnd(Ticket),
}

/// Aborts a command of which the device has nothing, or of which it gets no further piece.
/// `[NVMe Base 2.0 §5.1]`
pub(crate) fn abort(
    connection: &mut Connection,
    cid: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Aborted {
    if !connection.answers() {
        return Aborted::No;
    }
    let Some(slot) = connection.session.commands.find(cid) else {
        return Aborted::No;
    };
    let ticket = connection.ticket(slot);
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    let aborted = match entry.state() {
        CommandState::WaitingForNamespace | CommandState::WaitingForBuffer => true,
        CommandState::WaitingForTokens => withdraw_tokens(connection, slot, core),
        CommandState::Executing if entry.range.listed => {
            if entry.parts.outstanding == 0 || !dataset::is_open(entry) {
                return Aborted::No;
            }
            entry.status = Some(Status::ABORTED_BY_REQUEST);
            if mutation::active(Mutation::AbortAnsweredEarly) {
                return Aborted::Yes;
            }
            return Aborted::AtEnd(ticket);
        }
        CommandState::Executing => {
            let namespace = (subsystem, entry.nsid);
            core.namespaces
                .withdraw(namespace, entry.order.line, ticket)
                || mutation::active(Mutation::AbortFreesSlot)
        }
        _ => false,
    };
    if aborted {
        core.waiters.forget(connection.session.commands.slot(slot));
        finish(connection, slot, Status::ABORTED_BY_REQUEST, core, cx);
        return Aborted::Yes;
    }
    Aborted::No
}

/// Takes out a command that waits for tokens. Returns false if it does not.
fn withdraw_tokens(connection: &mut Connection, slot: u16, core: &mut CoreState) -> bool {
    let ticket = connection.ticket(slot);
    let entry = connection.session.commands.slot(slot);
    let (paying, number) = (entry.paying_namespace(), entry.order.line);
    let queue = connection.token_queue(paying);
    queue.is_some_and(|queue| core.tokens.withdraw(queue, number, ticket))
}
