//! Data that comes in command capsules: a buffer for it first, then the data, whole or as it arrives.

use crate::request::CommandState;
use crate::service::answers::take_buffer;
use crate::service::connection::{Connection, Owner};
use crate::service::core::CoreState;
use crate::service::requests::arrived;
use crate::service::wait_lists::WaitsFor;
use crate::session::event::Payload;
use crate::session::transfer::Incoming;
use reactor::{Context, IoSlice};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// Returns a buffer for the data of a command that has no slot yet, and its bytes, which count for the
/// connection.
///
/// An admin queue that holds no buffer always finds one of 8 KiB: Keep Alive would wait behind its
/// command. For an I/O queue with outstanding R2Ts there are a few beside the pool: their data comes behind
/// the command.
///
/// # Errors
/// The list in which input has to wait.
pub(crate) fn buffer(
    connection: &Connection,
    length: u32,
    core: &mut CoreState,
    cx: &Context<'_>,
) -> Result<(IoSlice, u32), WaitsFor> {
    let (length, pool) = (length as usize, cx.driver.buffers());
    if connection.is_fresh() {
        // One at a time, so that others find theirs.
        let first = connection.session.commands.used() == 0;
        let buffer = first.then(|| take_buffer(&core.admin_buffers, length));
        let (buffer, _) = buffer.flatten().ok_or(WaitsFor::SHARE)?;
        return Ok((buffer, 0));
    }
    let holding = &connection.holding;
    let mut list = WaitsFor::SHARE;
    if holding.may_take(length, pool, &core.limits).is_ok() {
        match core.waiters.may_take(length, pool) {
            Ok(()) => return take_buffer(pool, length).ok_or(list),
            Err(size) => list = size,
        }
    }
    let kept = match &connection.owner {
        Owner::Admin(_) if length <= ADMIN_IN_CAPSULE_BYTES as usize => {
            holding.is_empty().then_some(&core.admin_buffers)
        }
        Owner::Io(_) if connection.session.transferring > 0 => Some(&core.capsule_buffers),
        _ => return Err(list),
    };
    // Otherwise it tries again whenever one of these may have come back.
    let buffer = kept.and_then(|kept| take_buffer(kept, length));
    buffer.ok_or(WaitsFor::SHARE)
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
