//! Admin commands: who carries out which. `[NVMe Base 2.0 §5]`

use crate::controller::{Controller, Reply, features, identify, log_pages};
use crate::request::Ticket;
use crate::service::core::{Action, CoreState};
use crate::session::connection::Connection;
use crate::session::transfer;
use reactor::Context;
use std::sync::Arc;
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::vendor::EndController;
use wire::nvme::{Abort, AdminCommand, Command, Status};

/// Carries out one admin command.
pub(crate) fn execute(
    controller: &mut Controller,
    connection: &mut Connection,
    slot: u16,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Reply, Status> {
    let parsed = AdminCommand::parse(command)?;
    // [NVMe Base 2.0 §3.5.3]: before CC.EN only Fabrics commands are processed. A discovery
    // controller serves some hosts that never enable it.
    if !controller.status.ready() && !controller.is_discovery() {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    }
    let entry = connection.qpair.slot(slot);
    let data = entry
        .data
        .as_mut()
        .and_then(|data| data.bytes_mut())
        .unwrap_or_default();
    match parsed {
        AdminCommand::Identify(identify) => identify::execute(controller, &identify, data, core),
        AdminCommand::GetLogPage(get) => log_pages::execute(controller, &get, data, core),
        AdminCommand::GetFeatures(get) => features::get(controller, &get, data, core, cx.now),
        AdminCommand::SetFeatures(set) => {
            let reply = features::set(controller, &set, data, core, cx.now);
            connection.arm(core, controller.keep_alive.deadline());
            reply
        }
        AdminCommand::Abort(abort) => abort_command(controller, connection, slot, abort, core, cx),
        AdminCommand::AsyncEventRequest => {
            let cid = command.cid();
            controller.events.request(cid)?;
            // It waits in the controller, without a slot and without being part of a drain.
            connection.give_back(slot, core);
            if let Some((cid, event)) = controller.events.next() {
                let result = u64::from(event.to_dword());
                transfer::respond(connection, cid, Status::SUCCESS, result, core, cx);
            }
            Ok(Reply::Taken)
        }
        AdminCommand::KeepAlive => {
            controller.keep_alive.restart(cx.now);
            Ok(Reply::Bare(0))
        }
        AdminCommand::EndController(_) if !core.limits.end_controller => {
            Err(Status::INVALID_OPCODE.with_dnr())
        }
        AdminCommand::EndController(end) => end_other(controller, connection, slot, end, core),
    }
}

/// Abort. `[NVMe Base 2.0 §5.1]`
fn abort_command(
    controller: &mut Controller,
    connection: &mut Connection,
    slot: u16,
    abort: Abort,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Reply, Status> {
    if abort.sq_id == 0 && controller.events.abort(abort.cid) {
        let status = Status::ABORTED_BY_REQUEST;
        transfer::respond(connection, abort.cid, status, 0, core, cx);
        return Ok(Reply::Bare(0));
    }
    // The controller's own queue, too, at the end of the turn: what is aborted there may have to
    // tell the controller, which is taken off its connection while its command is carried out.
    let queue = match abort.sq_id {
        0 => Some(controller.shared.admin),
        id => controller.shared.queues().places.get(&id).copied(),
    };
    let Some(queue) = queue else {
        return Ok(Reply::Bare(u64::from(ABORT_NOT_ABORTED)));
    };
    let asker = Ticket {
        connection: connection.key,
        slot,
    };
    core.actions.push(Action::Abort {
        queue,
        cid: abort.cid,
        asker,
    });
    Ok(Reply::Later)
}

/// End Controller: ends another controller of the same host.
fn end_other(
    controller: &Controller,
    connection: &Connection,
    slot: u16,
    end: EndController,
    core: &mut CoreState,
) -> Result<Reply, Status> {
    let ours = &controller.shared;
    let other = core.shared.controllers().get(end.controller_id).cloned();
    let Some(other) = other else {
        return Ok(Reply::Bare(0));
    };
    let same_subsystem = match (&ours.subsystem, &other.subsystem) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    let same_host = ours.host_nqn == other.host_nqn && ours.host_id == other.host_id;
    if ours.id == other.id || !same_subsystem || !same_host {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    core.actions.push(Action::EndOther {
        controller: other,
        asker: Ticket {
            connection: connection.key,
            slot,
        },
    });
    Ok(Reply::Later)
}
