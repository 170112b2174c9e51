//! The Barrier command, and the commands that it holds. (docs/decisions/0015-barrier.md)
//!
//! Here is what happens to commands; who marks and who is told is in the poll group.

use crate::barrier::core::Held;
use crate::barrier::registry::{Barrier, Scope};
use crate::command::finish;
use crate::request::{Kind, Phase, Ticket};
use crate::service::core::CoreState;
use crate::session::connection::Connection;
use crate::session::input::Flow;
use base::SlabKey;
use reactor::Context;
use wire::limits::NSID_BROADCAST;
use wire::nvme::{Command, Status, vendor};

/// Barrier: waits until what came before it on its tenant is through.
pub(super) fn command(
    connection: &mut Connection,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let vendor::Barrier { nsid } = vendor::Barrier::parse(command);
    if !core.limits.barrier {
        return Err(Status::INVALID_OPCODE.with_dnr());
    }
    if command.fuse() != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if core.namespace(connection.subsystem, nsid).is_none() {
        return Err(Status::INVALID_NAMESPACE.with_dnr());
    }
    if let Some(rights) = &connection.rights {
        rights.check_any(nsid)?;
    }
    let slot = connection
        .qpair
        .begin(command, Kind::Barrier, nsid, cx.now)?;
    let entry = connection.qpair.slot(slot);
    entry.phase = Phase::WaitingForBarrier;
    hold(connection, slot, 0, None, core);
    if connection.qpair.slot(slot).held == 0 {
        begin(connection, slot, core, cx);
    }
    Ok(Flow::Continue)
}

/// A barrier that nothing holds any longer waits its turn among its tenant's.
fn begin(connection: &mut Connection, slot: u16, core: &mut CoreState, cx: &mut Context<'_>) {
    let nsid = connection.qpair.slot(slot).nsid;
    let scopes = connection.scopes.as_ref();
    let Some(scope) = scopes.and_then(|scopes| scopes.scope(nsid)) else {
        return finish(connection, slot, Status::ACCESS_DENIED.with_dnr(), core, cx);
    };
    if core.unscheduled {
        // The target ends, and some of its cores have ended already.
        return finish(connection, slot, Status::COMMAND_INTERRUPTED, core, cx);
    }
    let ticket = Ticket {
        connection: connection.key,
        slot,
    };
    let cores = core.shared.cores().len();
    let from = connection.peer.ip();
    let barrier = Barrier::new(scope, core.index, ticket, from, cores);
    let until = cx.now + core.limits.barrier_timeout;
    core.barriers.own(&barrier, until);
    if !core.shared.begin_barrier(&barrier) {
        core.stats.barriers_put_off += 1;
    }
}

/// A command has come, and brought `bytes` along: whether it has to wait is settled here, once.
#[inline]
pub(super) fn arrive(connection: &mut Connection, slot: u16, bytes: u32, core: &mut CoreState) {
    if !core.barriers.is_idle() {
        hold(connection, slot, bytes, None, core);
    }
}

/// Lets a command wait if one of its scopes is on hold, other than the one that lets it go.
#[cold]
fn hold(
    connection: &mut Connection,
    slot: u16,
    bytes: u32,
    released_by: Option<&Scope>,
    core: &mut CoreState,
) {
    let Some(scopes) = &connection.scopes else {
        return;
    };
    let entry = connection.qpair.slot(slot);
    let ticket = Ticket {
        connection: connection.key,
        slot,
    };
    let everywhere = (entry.nsid == NSID_BROADCAST).then(|| scopes.iter());
    let here = scopes.scope(entry.nsid);
    let here = here.filter(|_| entry.nsid != NSID_BROADCAST);
    let concerned = everywhere.into_iter().flatten().chain(here);
    let concerned = concerned.filter(|scope| released_by.is_none_or(|other| ***scope != *other));
    if let Some(number) = core.barriers.wait(concerned, ticket, bytes) {
        entry.held = number;
        core.stats.barrier_waits += 1;
    }
}

/// Lets a command go on that was held for a scope; a barrier holds what follows it from then on.
pub(crate) fn release(
    connection: &mut Connection,
    held: Held,
    scope: &Scope,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let Held { ticket, number, .. } = held;
    let waits = connection.qpair.get(ticket.slot);
    let Some(entry) = waits.filter(|entry| entry.held == number) else {
        return;
    };
    entry.held = 0;
    let kind = entry.kind;
    // It may be of several tenants, or of another one by now.
    hold(connection, ticket.slot, 0, Some(scope), core);
    let entry = connection.qpair.slot(ticket.slot);
    if entry.held != 0 {
        return;
    }
    if kind == Kind::Barrier {
        begin(connection, ticket.slot, core, cx);
    } else if entry.phase == Phase::WaitingForBarrier {
        // As one whose namespace was paused, and is no more.
        entry.phase = Phase::WaitingForNamespace;
        core.released.push_back(ticket);
    }
}

/// A barrier's command is gone: what it holds goes on.
pub(crate) fn withdraw(key: SlabKey, slot: u16, core: &mut CoreState) {
    let ticket = Ticket {
        connection: key,
        slot,
    };
    if let Some(barrier) = core.barriers.disown(ticket) {
        core.shared.end_barrier(&barrier);
    }
}

/// A barrier is over: its host is told how.
pub(crate) fn end(
    connection: &mut Connection,
    barrier: &Barrier,
    status: Status,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let slot = barrier.ticket.slot;
    let waits = connection.qpair.get(slot);
    if waits.is_some_and(|entry| entry.kind == Kind::Barrier && entry.held == 0) {
        finish(connection, slot, status, core, cx);
    }
}
