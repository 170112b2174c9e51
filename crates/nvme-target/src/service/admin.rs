//! Admin and Fabrics commands, from their arrival to a slot, a buffer, and their data.

use crate::command::blocks;
use crate::command::table::CommandKind;
use crate::controller::data;
use crate::request::CommandState;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::flow::Flow;
use crate::service::prepare::request_data;
use crate::service::requests::arrived;
use crate::service::{answers, capsule_data};
use crate::session::event::Payload;
use reactor::Context;
use wire::nvme::{Command, DataDirection, Status};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// Begins an admin or Fabrics command: gets it a slot and a buffer, and its data.
pub(crate) fn begin(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Flow {
    try_begin(connection, command, payload, core, cx).unwrap_or_else(|status| {
        answers::refuse(connection, command, status, core, cx);
        Flow::Continue
    })
}

fn try_begin(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let direction = data::direction(command);
    let pointer = data::pointer(command, direction)?;
    let length = pointer.length();
    let limit = match direction {
        DataDirection::ToController => ADMIN_IN_CAPSULE_BYTES,
        _ => core.limits.transfer_bytes,
    };
    if length > limit {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let inside = match direction {
        DataDirection::ToController if length > 0 => blocks::arrival(pointer, payload, length)?,
        _ if matches!(payload, Payload::None) => Some((0, &[][..])),
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    };
    let mut buffer = None;
    if length > 0 {
        match capsule_data::buffer(connection, length, core, cx) {
            Ok(taken) => buffer = Some(taken),
            Err(list) => return Ok(Flow::Stall(list)),
        }
    }
    let slot = connection
        .session
        .commands
        .take(command.cid(), &mut core.states)
        .ok_or(Status::INTERNAL_ERROR)?;
    let entry = connection.session.commands.slot(slot);
    entry.kind = CommandKind::Admin;
    entry.opcode = command.opcode();
    entry.command = Some(Box::new(*command));
    entry.transfer.length = length;
    let mut asks = false;
    if let Some((mut data, held)) = buffer {
        if let (DataDirection::ToController, Some(inside)) = (direction, inside) {
            let buffer = (data, held);
            capsule_data::receive(connection, slot, buffer, inside, payload, core, cx);
            return Ok(Flow::Continue);
        }
        asks = direction == DataDirection::ToController;
        if !asks && let Some(bytes) = data.bytes_mut() {
            bytes.fill(0);
        }
        entry.transfer.data = Some(data);
        connection.hold(slot, held);
    }
    if asks {
        request_data(connection, slot, core, cx);
    } else {
        let entry = connection.session.commands.slot(slot);
        entry.enter(CommandState::Arriving, &mut core.states);
        arrived(connection, slot, core, cx);
    }
    Ok(Flow::Continue)
}
