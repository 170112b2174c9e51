//! Commands and their tokens: what each costs, where it waits, and how it goes on. `[ReFlex §3.2]`
//!
//! Between the gate of a namespace and the command's being in flight there: whoever pauses a
//! namespace never waits for tokens, and what was paid for meanwhile waits at the gate. Nothing
//! that reaches a device goes round this, whichever way its data travels.

use crate::command::{execute, finish, gate, parts, proceed};
use crate::qos::core::Priced;
use crate::request::{Kind, Phase, Slot, Ticket};
use crate::service::core::CoreState;
use crate::session::connection::Connection;
use qos::{PricedOperation, units};
use reactor::Context;
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

/// Lets a command that passed the gate wait for its tokens.
pub(super) fn schedule(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    if entry.kind == Kind::Dataset && entry.received < entry.length {
        // Its data says what it costs; until that is here, nothing of it concerns the namespace.
        proceed(connection, slot, core, cx);
        return;
    }
    if core.unscheduled {
        entry.paid = true;
        gate(connection, slot, core, cx);
        return;
    }
    let nsid = entry.nsid;
    let namespace = core.namespace(connection.subsystem, nsid);
    let shape = namespace.map(|namespace| (namespace.block_shift, namespace.thin));
    let (shift, thin) = shape.unwrap_or((0, true));
    let entry = connection.qpair.slot(slot);
    let (operation, bytes) = asked(entry, shift, thin);
    if let Err(status) = wait(connection, slot, operation, units(bytes), core) {
        finish(connection, slot, status, core, cx);
    }
}

/// Flushes all namespaces, once the tokens for each are paid, one after the other.
pub(crate) fn flush_all(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    if entry.held != 0 {
        entry.phase = Phase::WaitingForBarrier;
        return;
    }
    if entry.paid {
        // It waited for a namespace that was paused.
        execute(connection, slot, core, cx);
        return;
    }
    let subsystem = connection.subsystem;
    let mut scheduled = core.scheduled(subsystem);
    let Slot {
        next_part, kind, ..
    } = *connection.qpair.slot(slot);
    if kind == Kind::Shutdown {
        // A host that leaves pays where there is something to flush, and waits nowhere else.
        scheduled.retain(|&(nsid, _)| {
            let namespace = core.namespace(subsystem, nsid);
            namespace.is_some_and(|n| n.shared.options.device.capabilities().volatile_cache)
        });
    }
    let rights = connection.rights.as_deref();
    let mut may = scheduled
        .into_iter()
        .map(|(nsid, _)| nsid)
        .filter(|&nsid| nsid > next_part)
        .filter(|&nsid| connection.seat(nsid).is_some())
        .filter(|&nsid| rights.is_none_or(|rights| rights.check_any(nsid).is_ok()));
    let charged = may.next().filter(|_| !core.unscheduled);
    let entry = connection.qpair.slot(slot);
    let Some(nsid) = charged else {
        entry.next_part = 0;
        entry.paid = true;
        execute(connection, slot, core, cx);
        return;
    };
    entry.next_part = nsid - 1;
    if let Err(status) = wait(connection, slot, PricedOperation::Flush, 1, core) {
        finish(connection, slot, status, core, cx);
    }
}

/// The tokens of a command are paid: it goes on, if its namespace lets it.
pub(crate) fn paid(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    entry.phase = Phase::Executing;
    if entry.nsid == NSID_BROADCAST {
        entry.next_part += 1;
        flush_all(connection, slot, core, cx);
    } else {
        entry.paid = true;
        gate(connection, slot, core, cx);
    }
}

/// A command that was held up goes to the gate again.
pub(crate) fn again(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    if connection.qpair.slot(slot).nsid == NSID_BROADCAST {
        flush_all(connection, slot, core, cx);
    } else {
        gate(connection, slot, core, cx);
    }
}

/// Takes out a command that waits for tokens. Whether it did.
pub(super) fn give_up(connection: &mut Connection, slot: u16, core: &mut CoreState) -> bool {
    let ticket = Ticket {
        connection: connection.key,
        slot,
    };
    let charged = connection.qpair.slot(slot).charged();
    let mut taken = Vec::new();
    if let Some(seat) = connection.seat(charged) {
        core.tokens
            .withdraw(seat, |other| other == ticket, &mut taken);
    }
    !taken.is_empty()
}

/// What a command asks of its device, and of how many bytes. One that is not thin writes zeroes to
/// deallocate.
fn asked(entry: &Slot, block_shift: u32, thin: bool) -> (PricedOperation, u64) {
    let bytes = u64::from(entry.blocks) << block_shift;
    match entry.kind {
        Kind::Read | Kind::Admin | Kind::Barrier => (PricedOperation::Read, bytes),
        Kind::Write => (PricedOperation::Write, bytes),
        Kind::Compare => (PricedOperation::Compare, bytes),
        Kind::Verify => (PricedOperation::Verify, bytes),
        Kind::WriteZeroes => (PricedOperation::WriteZeroes, bytes),
        Kind::Flush | Kind::Shutdown => (PricedOperation::Flush, 0),
        // The other attributes of ranges are hints, which no device sees.
        Kind::Dataset if !entry.deallocate => (PricedOperation::Read, 0),
        Kind::Dataset => {
            let ranges = entry.data.as_ref();
            let blocks = ranges.map_or(0, |data| parts::blocks_named(data, entry.blocks));
            let operation = if thin {
                PricedOperation::Deallocate
            } else {
                PricedOperation::WriteZeroes
            };
            (operation, blocks << block_shift)
        }
    }
}

/// Lets a command wait.
///
/// # Errors
/// Access Denied where the host is nobody; where its tenant was removed this very moment, a status
/// that asks for a retry.
fn wait(
    connection: &mut Connection,
    slot: u16,
    operation: PricedOperation,
    units: u32,
    core: &mut CoreState,
) -> Result<(), Status> {
    let priced = Priced {
        operation,
        units,
        ticket: Ticket {
            connection: connection.key,
            slot,
        },
    };
    let charged = connection.qpair.slot(slot).charged();
    for _ in 0..2 {
        let denied = Status::ACCESS_DENIED.with_dnr();
        let seat = connection.seat(charged).ok_or(denied)?;
        if core.tokens.enqueue(seat, priced).is_ok() {
            connection.qpair.slot(slot).phase = Phase::WaitingForTokens;
            return Ok(());
        }
        connection.reseat(core);
    }
    Err(Status::COMMAND_INTERRUPTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{IoSlice, Memory, Region};
    use wire::nvme::io::DatasetRange;

    /// It was charged as giving space back where the device had to write zeroes.
    #[test]
    fn a_device_that_writes_zeroes_to_deallocate_is_charged_for_writing() {
        let range = DatasetRange {
            attributes: 0,
            blocks: 100,
            slba: 7,
        };
        let region = Region::new(4096).expect("a page").handle();
        region.copy_in(0, &range.to_bytes());
        let entry = Slot {
            kind: Kind::Dataset,
            deallocate: true,
            blocks: 1,
            data: Some(IoSlice::new(Memory::Region(region), 0, 4096)),
            ..Slot::default()
        };
        let bytes = 100 * 4096;
        assert_eq!(
            asked(&entry, 12, true),
            (PricedOperation::Deallocate, bytes)
        );
        assert_eq!(
            asked(&entry, 12, false),
            (PricedOperation::WriteZeroes, bytes)
        );
    }
}
