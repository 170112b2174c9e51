//! Dispatch of admin commands. `[NVMe Base 2.0 §5]`

use crate::controller::registry::SharedController;
use crate::controller::reply::{Reply, View};
use crate::controller::state::{ABORTS_MAX, Controller};
use crate::controller::{features, identify, log_pages};
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::vendor::EndController;
use wire::nvme::{Abort, AdminCommand, Command, Status};

/// Executes one admin command, with `data` from or for the host.
pub(crate) fn execute(
    controller: &mut Controller,
    command: &Command,
    data: &mut [u8],
    view: &View<'_>,
) -> Result<Reply, Status> {
    let parsed = AdminCommand::parse(command)?;
    // [NVMe Base 2.0 §3.5.3]: before CC.EN only Fabrics commands are processed. A discovery
    // controller is exempt, because some hosts never enable it.
    if !controller.registers.takes_commands() && !controller.is_discovery() {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    }
    match parsed {
        AdminCommand::Identify(identify) => identify::execute(controller, &identify, data, view),
        AdminCommand::GetLogPage(get) => log_pages::execute(controller, &get, data, view),
        AdminCommand::GetFeatures(get) => features::get(controller, &get, data, view),
        AdminCommand::SetFeatures(set) => features::set(controller, &set, data, view),
        AdminCommand::Abort(abort) => abort_command(controller, abort),
        AdminCommand::AsyncEventRequest => {
            controller.events.request(command.cid())?;
            Ok(Reply::AwaitEvent)
        }
        AdminCommand::KeepAlive => {
            controller.keep_alive.restart(view.now);
            Ok(Reply::Bare(0))
        }
        AdminCommand::EndController(_) if !view.limits.end_controller => {
            Err(Status::INVALID_OPCODE.with_dnr())
        }
        AdminCommand::EndController(end) => end_other(controller, end, view),
    }
}

/// Handles Abort. A waiting Abort counts until it is answered, so a host that respects ACL is never
/// refused. `[NVMe Base 2.0 §5.1]`
fn abort_command(controller: &mut Controller, abort: Abort) -> Result<Reply, Status> {
    if controller.aborts >= ABORTS_MAX {
        return Err(Status::ABORT_LIMIT_EXCEEDED);
    }
    if abort.sq_id == 0 && controller.events.abort(abort.cid) {
        return Ok(Reply::EventAborted(abort.cid));
    }
    let queue = match abort.sq_id {
        0 => Some(controller.shared.admin),
        id => controller.shared.queues().places.get(&id).copied(),
    };
    let Some(queue) = queue else {
        return Ok(Reply::Bare(u64::from(ABORT_NOT_ABORTED)));
    };
    controller.aborts += 1;
    Ok(Reply::Abort {
        queue,
        cid: abort.cid,
    })
}

/// Handles End Controller: ends another controller of the same host.
fn end_other(
    controller: &Controller,
    end: EndController,
    view: &View<'_>,
) -> Result<Reply, Status> {
    let ours = &controller.shared;
    let other = view.shared.controllers().get(end.controller_id).cloned();
    let Some(other) = other else {
        return Ok(Reply::Bare(0));
    };
    if ours.id == other.id || !of_same_host(ours, &other) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    Ok(Reply::EndController(other))
}

/// Returns true if two controllers belong to the same host and the same subsystem, compared by its
/// name. A subsystem that was removed and added again may still have a controller whose commands
/// change data that hosts see now.
fn of_same_host(one: &SharedController, other: &SharedController) -> bool {
    let same_subsystem = match (&one.subsystem, &other.subsystem) {
        (Some(a), Some(b)) => a.nqn == b.nqn,
        _ => false,
    };
    same_subsystem && one.host_nqn == other.host_nqn && one.host_id == other.host_id
}
