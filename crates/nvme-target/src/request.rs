//! A command between its arrival and its answer.
//!
//! Most reads and writes of memory are answered as they are parsed and never get here. Whatever
//! has to wait (for data, a buffer, the device, a paused namespace, room to send) has a [`Slot`]
//! in its queue pair's table.

use base::{SlabKey, Time};
use block::BlockError;
use qos::access::Need;
use reactor::IoSlice;
use wire::limits::NSID_BROADCAST;
use wire::nvme::{Command, Status};

use crate::limits::R2TS_PER_COMMAND_MAX;

/// Names a slot of a connection; the name may be stale, its user checks the slot's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) connection: SlabKey,
    pub(crate) slot: u16,
}

impl Ticket {
    /// The ticket as the tag of a device request.
    pub(crate) fn tag(self) -> u64 {
        u64::from(self.connection.index)
            | (u64::from(self.slot) << 32)
            | (u64::from(self.connection.generation) << 48)
    }

    /// The ticket that [`tag`](Self::tag) was made from.
    pub(crate) fn from_tag(tag: u64) -> Self {
        let [i0, i1, i2, i3, s0, s1, generation, _] = tag.to_le_bytes();
        Self {
            connection: SlabKey {
                index: u32::from_le_bytes([i0, i1, i2, i3]),
                generation,
            },
            slot: u16::from_le_bytes([s0, s1]),
        }
    }
}

/// Where a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nowhere: the slot is free.
    #[default]
    Free,
    /// Its in-capsule data is still arriving.
    Arriving,
    /// The namespace is paused.
    WaitingForNamespace,
    /// A barrier of its tenant holds it; a barrier itself waits for what came before it.
    WaitingForBarrier,
    /// Its tenant has no tokens for it yet.
    WaitingForTokens,
    /// No buffer is free for its data.
    WaitingForBuffer,
    /// R2Ts are out, or about to be, and data is arriving.
    Transferring,
    /// It is being carried out: by the device, or by another core.
    Executing,
    /// It is done, and there was no room to send the answer.
    Answering,
}

/// What a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An admin or Fabrics command; the slot keeps all of it.
    #[default]
    Admin,
    Read,
    Write,
    Compare,
    Verify,
    WriteZeroes,
    Flush,
    /// The normal shutdown of the controller: a Property Set that flushes what is volatile first.
    Shutdown,
    Dataset,
    /// Our own: waits for other commands, and has nothing to do with a device.
    Barrier,
}

impl Kind {
    /// What a command on blocks needs to be allowed. One that changes nothing still tells what is
    /// there.
    pub(crate) const fn need(self) -> Need {
        match self {
            Self::Write | Self::WriteZeroes => Need::Write,
            // Dataset Management asks by what it does.
            Self::Read | Self::Compare | Self::Verify | Self::Flush | Self::Dataset => Need::Read,
            Self::Admin | Self::Shutdown | Self::Barrier => Need::Read,
        }
    }

    /// Whether data travels from the host.
    pub(crate) const fn takes_data(self) -> bool {
        matches!(self, Self::Write | Self::Compare | Self::Dataset)
    }

    /// Whether it changes what a device holds: then nothing may be done again that was lost with
    /// its connection before it is through (docs/decisions/0004-replay.md).
    pub(crate) const fn changes_data(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Dataset)
    }
}

/// One command.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    pub(crate) kind: Kind,
    pub(crate) cid: u16,
    /// FUA.
    pub(crate) durable: bool,
    /// DEAC.
    pub(crate) deallocate: bool,
    /// A read whose payload is sent from the device's own memory.
    pub(crate) direct: bool,
    /// Its tokens are paid, or nobody asks for any.
    pub(crate) paid: bool,
    /// Counted as in flight in its namespace.
    pub(crate) counted: bool,
    /// Its bytes count as outstanding.
    pub(crate) weighed: bool,
    /// A payload's digest did not match.
    pub(crate) damaged: bool,
    pub(crate) opcode: u8,
    /// It waits for a barrier, as the core's command of this number; 0 where it does not.
    pub(crate) held: u32,
    /// Barriers in force that it came before.
    pub(crate) marks: u64,
    /// Parts that the device has.
    pub(crate) parts: u16,
    /// Next part to begin, or to pay for (an index into ranges or namespaces).
    pub(crate) next_part: u32,
    pub(crate) nsid: u32,
    pub(crate) blocks: u32,
    pub(crate) lba: u64,
    /// When the command was dispatched.
    pub(crate) began: Time,
    /// When it went to its device; never, as long as this is zero. While its data is on the way:
    /// when that was asked for.
    pub(crate) submitted: Time,
    /// Bytes of data.
    pub(crate) length: u32,
    /// Of them, those that arrived.
    pub(crate) received: u32,
    /// R2Ts sent, and the oldest of them that is not fulfilled.
    pub(crate) r2ts_sent: u16,
    pub(crate) r2ts_done: u16,
    /// Bytes that each outstanding R2T still misses, by its number.
    pub(crate) missing: [u32; R2TS_PER_COMMAND_MAX],
    pub(crate) data: Option<IoSlice>,
    /// Bytes of buffers that its connection holds for it.
    pub(crate) charged: u32,
    /// The whole command, for the rare kinds.
    pub(crate) command: Option<Box<Command>>,
    /// The answer.
    pub(crate) status: Option<Status>,
    pub(crate) result: u64,
}

impl Slot {
    /// The namespace that its tokens are for: a Flush of all pays for one after the other.
    pub(crate) const fn charged(&self) -> u32 {
        if self.nsid == NSID_BROADCAST {
            self.next_part + 1
        } else {
            self.nsid
        }
    }

    /// Whether its data goes to the host with the answer.
    pub(crate) fn sends_data(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Admin) && self.status.is_some_and(Status::is_success)
    }
}

/// The status that says what went wrong in a device.
pub(crate) fn status_of(error: BlockError, kind: Kind) -> Status {
    match error {
        BlockError::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        BlockError::Malformed => Status::INVALID_FIELD.with_dnr(),
        BlockError::Unsupported => Status::INVALID_OPCODE.with_dnr(),
        BlockError::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED.with_dnr(),
        BlockError::Denied => Status::ACCESS_DENIED.with_dnr(),
        BlockError::NoSpace => Status::CAPACITY_EXCEEDED.with_dnr(),
        BlockError::ReadFailure => Status::UNRECOVERED_READ_ERROR,
        BlockError::WriteFailure | BlockError::CacheLost => Status::WRITE_FAULT,
        BlockError::CompareFailure => Status::COMPARE_FAILURE.with_dnr(),
        BlockError::Corrupt => match kind {
            Kind::Read | Kind::Compare | Kind::Verify => Status::UNRECOVERED_READ_ERROR.with_dnr(),
            _ => Status::WRITE_FAULT,
        },
        BlockError::Aborted => Status::ABORTED_BY_REQUEST,
        BlockError::Gone => Status::NAMESPACE_NOT_READY.with_dnr(),
        BlockError::TimedOut => Status::COMMAND_INTERRUPTED,
        BlockError::Internal => Status::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_the_trip_through_a_tag() {
        let connection = SlabKey {
            index: 70_000,
            generation: 255,
        };
        let ticket = Ticket {
            connection,
            slot: 1023,
        };
        assert_eq!(Ticket::from_tag(ticket.tag()), ticket);
    }

    #[test]
    fn an_idle_slot_is_small() {
        // 128 of them stay below the memory that an idle connection may take.
        assert!(size_of::<Slot>() <= 192, "{}", size_of::<Slot>());
    }
}
