//! Admin and Fabrics commands, from their arrival to a slot, a buffer, and their data.

use crate::command::blocks;
use crate::controller::data::{self, Direction};
use crate::request::{Kind, State};
use crate::service::answers;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::flow::Flow;
use crate::service::requests::{arrived, request_data};
use crate::session::event::Payload;
use crate::session::transfer::Incoming;
use reactor::{Context, IoSlice};
use wire::nvme::{Command, Status};
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

/// Returns a buffer for a command's data, if it has any, and the bytes of the core's that it takes;
/// `None` where the command has to wait for one.
fn buffer_for(
    connection: &Connection,
    length: u32,
    core: &CoreState,
    cx: &Context<'_>,
) -> Option<(Option<IoSlice>, u32)> {
    if length == 0 {
        return Some((None, 0));
    }
    let length = length as usize;
    // Input must not wait while commands of this very connection wait for data in it.
    let waits = connection.session.transferring > 0;
    let pool = cx.driver.buffers();
    let fair = connection
        .holding
        .may_take(length, pool, &core.limits)
        .is_ok();
    let (buffer, held) = answers::take_buffer(cx, length).filter(|_| fair || waits)?;
    Some((Some(buffer), held))
}

fn try_begin(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let direction = Direction::of(command);
    let pointer = data::pointer(command, direction)?;
    let length = pointer.length();
    let limit = match direction {
        Direction::ToController => ADMIN_IN_CAPSULE_BYTES,
        _ => core.limits.transfer_bytes,
    };
    if length > limit {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let inside = match direction {
        Direction::ToController if length > 0 => blocks::arrival(pointer, payload, length)?,
        _ if matches!(payload, Payload::None) => Some((0, &[][..])),
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    };
    let Some((mut buffer, held)) = buffer_for(connection, length, core, cx) else {
        return Ok(Flow::Stall);
    };
    let slot = connection
        .session
        .commands
        .take(command.cid(), &mut core.states)
        .ok_or(Status::INTERNAL_ERROR)?;
    connection.hold(slot, held);
    let entry = connection.session.commands.slot(slot);
    entry.kind = Kind::Admin;
    entry.opcode = command.opcode();
    entry.command = Some(Box::new(*command));
    entry.transfer.length = length;
    let Some((skip, data)) = inside else {
        entry.transfer.data = buffer;
        request_data(connection, slot, core, cx);
        return Ok(Flow::Continue);
    };
    match (direction, payload) {
        (Direction::ToHost, _) => {
            if let Some(bytes) = buffer.as_mut().and_then(|buffer| buffer.bytes_mut()) {
                bytes.fill(0);
            }
        }
        (_, Payload::Whole(_, digest_ok)) => {
            if let Some(buffer) = &mut buffer {
                buffer.copy_in(0, data);
            }
            entry.transfer.damaged = !digest_ok;
            entry.transfer.received = length;
        }
        _ => {}
    }
    entry.transfer.data = buffer;
    entry.enter(State::Arriving, &mut core.states);
    if direction != Direction::ToHost && matches!(payload, Payload::Arriving(_)) {
        connection.session.incoming = Incoming::capsule(slot, skip, length);
    } else {
        arrived(connection, slot, core, cx);
    }
    Ok(Flow::Continue)
}
