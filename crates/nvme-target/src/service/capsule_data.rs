//! Data that comes in command capsules: a buffer for it first, then the data, whole or as it arrives.

use crate::request::CommandState;
use crate::service::answers;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::requests::arrived;
use crate::session::event::Payload;
use crate::session::transfer::Incoming;
use reactor::{Context, IoSlice};
use wire::nvme::Status;

/// Returns a buffer for the data of a command that has no slot yet, and the bytes of the core's that
/// it takes; `None` where input has to wait for one. Connect has memory of its own.
///
/// # Errors
/// Command Interrupted where input must not wait, because commands of this very connection wait for
/// data in it, and too few buffers are left to take one beyond the share.
pub(crate) fn buffer(
    connection: &Connection,
    length: u32,
    core: &CoreState,
    cx: &Context<'_>,
) -> Result<Option<(IoSlice, u32)>, Status> {
    let (length, pool) = (length as usize, cx.driver.buffers());
    if connection.is_fresh() {
        // One at a time, so that others find theirs.
        let first = connection.session.commands.used() == 0;
        let buffer = first.then(|| core.connects.take(length)).flatten();
        return Ok(buffer.map(|buffer| (IoSlice::from_buffer(buffer, length), 0)));
    }
    let holding = &connection.holding;
    if holding.may_take(length, pool, &core.limits).is_err() {
        if connection.session.transferring == 0 {
            return Ok(None);
        }
        if !holding.may_exceed(length, pool) {
            return Err(Status::COMMAND_INTERRUPTED);
        }
    }
    Ok(answers::take_buffer(cx, length))
}

/// Gives a command its buffer and the data that came `inside` of its capsule, with the bytes to skip
/// there. It goes on, or waits for the rest of the capsule.
pub(crate) fn receive(
    connection: &mut Connection,
    slot: u16,
    (mut buffer, held): (IoSlice, u32),
    (skip, data): (u32, &[u8]),
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    connection.hold(slot, held);
    let entry = connection.session.commands.slot(slot);
    let length = entry.transfer.length;
    if let Payload::Whole(_, digest_ok) = payload {
        buffer.copy_in(0, data);
        entry.transfer.received = length;
        entry.transfer.damaged = !digest_ok;
        core.stats.data_digest_errors += u64::from(!digest_ok);
    }
    entry.transfer.data = Some(buffer);
    entry.enter(CommandState::Arriving, &mut core.states);
    if matches!(payload, Payload::Arriving(_)) {
        connection.session.incoming = Incoming::capsule(slot, skip, length);
    } else {
        arrived(connection, slot, core, cx);
    }
}
