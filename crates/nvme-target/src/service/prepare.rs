//! The needs of a command before it is executed: a buffer, its data, its share of the work that
//! devices do without buffers. A command waits for those that are not met.

use crate::command::cost;
use crate::command::step::Step;
use crate::request::CommandState;
use crate::service::answers;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::wait_lists::WaitsFor;
use crate::shares::{Share, WORK_PART};
use reactor::{BufferPool, Context};

/// Gets a command what it needs before it is executed: a buffer and its data, or its share of what
/// devices do without buffers.
pub(crate) fn prepare(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Step {
    let entry = connection.session.commands.slot(slot);
    let transfer = &entry.transfer;
    let asks = entry.kind.takes_data() && transfer.received < transfer.length;
    let has_room = get_buffer(connection, slot, asks, core, cx)
        && (asks || get_work(connection, slot, core, cx));
    if !has_room {
        return Step::Wait;
    }
    let entry = connection.session.commands.slot(slot);
    if entry.state() == CommandState::WaitingForBuffer {
        entry.enter(CommandState::Dispatched, &mut core.states);
    }
    if asks {
        request_data(connection, slot, core, cx);
        Step::Wait
    } else {
        Step::Execute
    }
}

/// Gets a command a buffer, if it needs one. Returns false if it waits for that.
fn get_buffer(
    connection: &mut Connection,
    slot: u16,
    asks: bool,
    core: &mut CoreState,
    cx: &Context<'_>,
) -> bool {
    let digests = connection.session.output.format().data_digest;
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    let (reads, length) = (entry.kind.sends_data(), entry.transfer.length);
    let needs = entry.transfer.data.is_none() && length > 0 && (asks || reads);
    if !needs {
        return true;
    }
    let namespace = core.namespace_ref(subsystem, entry.nsid);
    let memory = namespace.is_some_and(|namespace| namespace.direct.is_some());
    entry.transfer.direct = memory && !digests && reads;
    if entry.transfer.direct {
        return true;
    }
    let pool = cx.driver.buffers();
    let holding = &connection.holding;
    // Each extent of a read has a buffer of its own.
    let table = entry.extents.as_deref();
    let (largest, share) = match table.filter(|_| reads) {
        Some(table) => (
            table.lengths().max().unwrap_or_default(),
            holding.may_take_all(table.lengths(), pool, &core.limits),
        ),
        None => (
            length as usize,
            holding.may_take(length as usize, pool, &core.limits),
        ),
    };
    if let Err(share) = share {
        wait_for_share(connection, slot, share, core);
        return false;
    }
    let turn = core.waiters.may_take(largest, pool);
    if let Err(list) = turn.and_then(|()| take_buffers(connection, slot, largest, pool)) {
        wait(connection, slot, list, core);
        core.stats.buffer_waits += 1;
        return false;
    }
    true
}

/// Takes a buffer for the data of a command, or one for each extent of a read.
///
/// # Errors
/// The list to wait in, where too few are free.
fn take_buffers(
    connection: &mut Connection,
    slot: u16,
    largest: usize,
    pool: &BufferPool,
) -> Result<(), WaitsFor> {
    let entry = connection.session.commands.slot(slot);
    let taken = match &mut entry.extents {
        Some(table) if entry.kind.sends_data() => {
            let held = table.take_buffers(|length| answers::take_buffer(pool, length));
            held.map(|held| (None, held))
        }
        _ => answers::take_buffer(pool, largest).map(|(data, held)| (Some(data), held)),
    };
    let (data, held) = taken.ok_or_else(|| WaitsFor::buffer_of(largest, pool))?;
    entry.transfer.data = data;
    connection.hold(slot, held);
    Ok(())
}

/// Counts what a device works on for a command without a buffer for it. Returns false if the command
/// waits for its share of that: others would wait behind it in the device.
fn get_work(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &Context<'_>,
) -> bool {
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    if entry.accounting.works || !entry.works_without_buffer() {
        return true;
    }
    let pool = cx.driver.buffers();
    if entry.transfer.work_bytes == 0 {
        let namespace = core.namespace_ref(subsystem, entry.nsid);
        let shift = namespace.map_or(0, |namespace| namespace.block_shift);
        let most = (pool.bytes().0 / WORK_PART) as u64;
        let bytes = cost::bytes_without_buffer(entry, shift).min(most);
        entry.transfer.work_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
    let bytes = u64::from(entry.transfer.work_bytes);
    if bytes == 0 {
        return true;
    }
    if let Err(share) = connection.holding.may_work(bytes, pool, &core.limits) {
        wait_for_share(connection, slot, share, core);
        return false;
    }
    connection.begin_work(slot);
    true
}

/// Lets a command wait for a share that is used up.
fn wait_for_share(connection: &mut Connection, slot: u16, share: Share, core: &mut CoreState) {
    let entry = connection.session.commands.slot(slot);
    if entry.state() != CommandState::WaitingForBuffer {
        share.count(&mut core.stats);
    }
    wait(connection, slot, WaitsFor::SHARE, core);
}

/// Lets a command wait in a list.
fn wait(connection: &mut Connection, slot: u16, list: WaitsFor, core: &mut CoreState) {
    let ticket = connection.ticket(slot);
    let entry = connection.session.commands.slot(slot);
    if entry.state() != CommandState::WaitingForBuffer {
        entry.enter(CommandState::WaitingForBuffer, &mut core.states);
    }
    entry.order.waits = core.waiters.lists.push(list, ticket);
}

/// Requests a command's data from the host, by R2T.
pub(crate) fn request_data(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    assert!(
        entry.transfer.data.is_some(),
        "a host sends data for which there is a buffer"
    );
    entry.enter(CommandState::Transferring, &mut core.states);
    entry.accounting.submitted = cx.now;
    connection.session.transferring += 1;
    let limits = &core.limits;
    let patience = limits.stall_timeout.min(limits.transfer_timeout);
    connection.arm(core, cx.now + patience);
    if let Some(stalled) = &mut connection.session.stalled {
        // The data comes behind the input that waits, which has buffers of its own from now on.
        let input = core.waiters.lists.remove(stalled.waits);
        stalled.waits = core.waiters.lists.push(WaitsFor::SHARE, input);
        core.waiters.try_all();
    }
    answers::send_r2ts(connection, slot, core, cx);
}
