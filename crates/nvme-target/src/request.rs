//! A command between its arrival and its answer: its state and its data.
//!
//! Most reads and writes of memory are answered during parsing and get no slot. A command that has
//! to wait (for data, a buffer, tokens, the device, a paused namespace, space to send) has a
//! [`Slot`] in the table of its queue.
//!
//! ```text
//!  Free ──► Dispatched ───────────────────────► Executing ──► Answering ──► Free
//!            ▲     │                              │    │
//!            │     ├──► Arriving            ──┐   │    └──► WaitingForNamespace
//!            │     ├──► Transferring          │   │         (next part of a Flush of all)
//!            │     ├──► WaitingForNamespace   ├───┤
//!            │     ├──► WaitingForTokens      │   │ (normal shutdown becomes a Flush)
//!            │     ├──► WaitingForFused       │   │ (of the first half, with the second)
//!            │     └──► WaitingForBuffer    ──┘   │
//!            └────────────────────────────────────┘
//! ```
//!
//! A command that waits for tokens or a buffer enters `WaitingForNamespace` if its namespace
//! pauses.
//!
//! A dispatched command passes its gates in order, and again after each wait, because another gate
//! may have closed meanwhile. Every state may end in the answer (an error, an abort), or in nothing
//! (the connection has closed). Each state has a name for traces and a counter of the commands that
//! entered it ([`Transitions`]). [`Slot::enter`] panics on a transition that the diagram does not
//! have.

use crate::command::table::{CommandKind, Form};
use crate::extent_table::ExtentTable;
use crate::limits::R2TS_PER_COMMAND_MAX;
use crate::trace::stamps::{Stage, Stamps};
use base::mutation::{self, Mutation};
use base::{SlabKey, Time};
use block::{BlockError, Extents, Operation, Request};
use reactor::IoSlice;
use std::num::NonZeroU16;
use wire::limits::NSID_BROADCAST;
use wire::nvme::{Command, Status};

/// Reference to a slot of a connection. It may be stale: its user checks the slot's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) connection: SlabKey,
    pub(crate) slot: u16,
}

/// An Abort command that waits for the end of the command that it aborts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingAbort {
    /// The command that it aborts.
    pub(crate) aborted: Ticket,
    /// The core of the Abort command.
    pub(crate) from: usize,
    /// The Abort command.
    pub(crate) asker: Ticket,
}

/// Lowest bit of the extent's index in the tag of a device request.
const PART_SHIFT: u32 = 56;

impl Ticket {
    /// Returns the ticket as the tag of a device request.
    pub(crate) fn tag(self) -> u64 {
        u64::from(self.connection.index)
            | (u64::from(self.slot) << 32)
            | (u64::from(self.connection.generation) << 48)
    }

    /// Returns the tag of the request for one extent of a command.
    pub(crate) fn part_tag(self, part: u8) -> u64 {
        self.tag() | (u64::from(part) + 1) << PART_SHIFT
    }

    /// Returns the extent that a tagged request belongs to; `None` for other requests.
    pub(crate) fn part(tag: u64) -> Option<u8> {
        let [.., part] = tag.to_le_bytes();
        part.checked_sub(1)
    }

    /// Returns the ticket that [`tag`](Self::tag) was created from.
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

/// Next step of a command that has a slot.
#[derive(Debug)]
pub(crate) enum Step {
    /// The command passes its gates: namespace, tokens.
    Admit,
    /// The command gets a buffer, and its data from the host.
    Prepare,
    /// The command has all its resources and is executed.
    Execute,
    /// A request goes to the device of a namespace, by NSID.
    Submit(u32, Request),
    /// A command over extents goes to the device of a namespace, by NSID.
    SubmitExtents(u32, Extents),
    /// The command continues with its next part, if any.
    Continue,
    /// The command pays for its next part; until then it is not in flight in its namespace.
    PayAgain,
    /// The command waits until a namespace's gate opens.
    WaitForNamespace(u32),
    /// The command waits for an event that is certain to occur: a completion, a buffer, data,
    /// tokens.
    Wait,
    /// The command has its status and is answered.
    Answer(Status),
}

base::named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(u8)]
    pub(crate) enum CommandState {
        /// The slot has no command.
        #[default]
        Free = "free",
        /// The command is passing its gates.
        Dispatched = "dispatched",
        /// In-capsule data is arriving.
        Arriving = "arriving",
        /// The namespace is paused.
        WaitingForNamespace = "waiting for namespace",
        /// The tenant has no tokens for the command yet.
        WaitingForTokens = "waiting for tokens",
        /// No buffer is free for the command's data, or the share of buffers is used up.
        WaitingForBuffer = "waiting for buffer",
        /// The other half of a fused pair is not ready.
        WaitingForFused = "waiting for fused",
        /// R2Ts are outstanding or about to be sent, and data is arriving.
        Transferring = "transferring",
        /// The device or another core executes the command.
        Executing = "executing",
        /// The command has its status, and the answer waits for space to send.
        Answering = "answering",
    }
}

impl CommandState {
    /// Returns the legal next states as a bit set by discriminant.
    const fn successors(self) -> u16 {
        const fn set(states: &[CommandState]) -> u16 {
            let (mut bits, mut at) = (0, 0);
            while at < states.len() {
                bits |= 1 << states[at] as u16;
                at += 1;
            }
            bits
        }
        const END: u16 = set(&[CommandState::Answering, CommandState::Free]);
        match self {
            Self::Free => set(&[Self::Dispatched]),
            Self::Dispatched => {
                let waits = set(&[
                    Self::Arriving,
                    Self::Transferring,
                    Self::WaitingForNamespace,
                    Self::WaitingForTokens,
                    Self::WaitingForBuffer,
                    Self::WaitingForFused,
                ]);
                waits | set(&[Self::Executing]) | END
            }
            Self::Arriving | Self::Transferring | Self::WaitingForNamespace => {
                set(&[Self::Dispatched]) | END
            }
            // Released: the command continues in the same turn, together with commands of
            // namespaces that opened.
            Self::WaitingForTokens => set(&[Self::Dispatched, Self::WaitingForNamespace]) | END,
            // The namespace pauses; a pause does not wait for buffers.
            Self::WaitingForBuffer => set(&[Self::Dispatched, Self::WaitingForNamespace]) | END,
            Self::WaitingForFused => set(&[Self::Dispatched, Self::Executing]) | END,
            Self::Executing => set(&[Self::Dispatched, Self::WaitingForNamespace]) | END,
            Self::Answering => set(&[Self::Free]),
        }
    }

    /// Returns the stage of a trace that time in this state belongs to.
    pub(crate) const fn stage(self) -> Stage {
        match self {
            Self::Free | Self::Dispatched => Stage::Core,
            Self::Arriving | Self::Transferring | Self::WaitingForFused => Stage::Transfer,
            Self::WaitingForNamespace => Stage::Pause,
            Self::WaitingForTokens => Stage::Tokens,
            Self::WaitingForBuffer => Stage::Buffer,
            Self::Executing => Stage::Device,
            Self::Answering => Stage::Send,
        }
    }

    /// Returns true if a command may go from this state to `next`.
    pub(crate) const fn may_become(self, next: Self) -> bool {
        self.successors() >> next as u16 & 1 == 1
    }
}

/// The state transitions of a core's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transitions {
    /// Numbers of commands that entered each state, by discriminant.
    counts: [u64; CommandState::COUNT],
    /// Time of the next transition, for traces: the start of the turn, or later in the same turn.
    pub(crate) now: Time,
}

impl Transitions {
    /// Returns the number of commands that entered `state`.
    pub(crate) const fn of(&self, state: CommandState) -> u64 {
        self.counts[state as usize]
    }
}

/// Blocks of a command, and their treatment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockRange {
    /// First block; for a list of ranges, the number of blocks of the current range that were
    /// begun.
    pub(crate) lba: u64,
    /// Number of blocks; for a list of ranges, number of ranges.
    pub(crate) blocks: u32,
    /// The command's data is a list of ranges, which are processed piece by piece.
    pub(crate) listed: bool,
    /// The command has FUA set.
    pub(crate) durable: bool,
    /// The command has DEAC (Write Zeroes) or AD (Dataset Management) set.
    pub(crate) deallocate: bool,
    /// The device flushes the blocks before the command reads them from the medium.
    pub(crate) commits: bool,
    /// FUA on a device with a volatile write cache: the command also pays for a flush.
    pub(crate) pays_flush: bool,
}

/// Progress of the data of a command.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    /// Bytes of data.
    pub(crate) length: u32,
    /// Bytes that arrived.
    pub(crate) received: u32,
    /// R2Ts sent.
    pub(crate) r2ts_sent: u16,
    /// R2Ts fulfilled, in order: the number of the oldest unfulfilled one.
    pub(crate) r2ts_done: u16,
    /// Missing bytes of each outstanding R2T, by its number.
    pub(crate) missing: [u32; R2TS_PER_COMMAND_MAX],
    pub(crate) data: Option<IoSlice>,
    /// Bytes of buffers that the connection holds for the command.
    pub(crate) held_bytes: u32,
    /// Bytes that the device works on without a buffer for them; 0 until they are known.
    pub(crate) work_bytes: u32,
    /// The data digest of a payload did not match.
    pub(crate) damaged: bool,
    /// The payload of a read is sent from the device's own memory.
    pub(crate) direct: bool,
    /// An R2T of the command waits for space in the send lists.
    pub(crate) r2t_waits: bool,
}

/// Device requests of a command with several parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Outstanding requests at the device.
    pub(crate) outstanding: u16,
    /// Index of the next part to begin, or to pay for: a range, or a namespace.
    pub(crate) next: u32,
    /// Blocks that are paid for but not begun, if the command pays part by part.
    pub(crate) paid_blocks: Option<PaidBlocks>,
}

/// A number of blocks, 0 to [`MAX`](Self::MAX), in two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaidBlocks(NonZeroU16);

impl PaidBlocks {
    /// The highest number.
    pub(crate) const MAX: u32 = u16::MAX as u32 - 1;

    /// Returns this number, limited to [`MAX`](Self::MAX).
    pub(crate) fn new(blocks: u32) -> Self {
        let next = u16::try_from(blocks.min(Self::MAX) + 1);
        Self(
            next.ok()
                .and_then(NonZeroU16::new)
                .unwrap_or(NonZeroU16::MAX),
        )
    }

    pub(crate) const fn get(self) -> u32 {
        self.0.get() as u32 - 1
    }
}

/// Positions of a command in the waiting lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Position of the command in the line for a buffer or a share; 0 if it is not in it.
    pub(crate) waits: u32,
    /// Number under which the command waits for tokens or for room in its device; it may be stale,
    /// because the command may have been served.
    pub(crate) line: u32,
}

/// Accounting state of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounting {
    /// Time at which the command was dispatched.
    pub(crate) began: Time,
    /// Time at which the command went to its device, 0 before; during a transfer, the time of the
    /// R2T.
    pub(crate) submitted: Time,
    /// Tokens are paid, or the command costs none.
    pub(crate) paid: bool,
    /// The command is in flight in its namespace.
    pub(crate) in_flight: bool,
    /// The command's bytes count as outstanding.
    pub(crate) outstanding: bool,
    /// The command's unbuffered bytes count for its connection.
    pub(crate) works: bool,
    /// Incarnation of the namespace that the command was checked against and is counted in; 0 if it
    /// addresses no single namespace.
    pub(crate) incarnation: u32,
}

/// What a half of a fused pair, or the queue, knows of the pair's other half; in two bytes. `[NVMe
/// Base 2.0 §3.4.2]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherHalf(NonZeroU16);

impl OtherHalf {
    /// It has not arrived.
    pub(crate) const AWAITED: Self = Self(NonZeroU16::MAX);
    /// It has failed, or never came.
    pub(crate) const FAILED: Self = Self(NonZeroU16::MIN);

    /// It has this slot.
    pub(crate) fn at(slot: u16) -> Self {
        Self(NonZeroU16::MIN.saturating_add(slot + 1))
    }

    /// Returns its slot, if it has one.
    pub(crate) fn slot(self) -> Option<u16> {
        let known = self != Self::AWAITED && self != Self::FAILED;
        known.then(|| self.0.get() - 2)
    }
}

/// One command.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: CommandState,
    pub(crate) kind: CommandKind,
    pub(crate) opcode: u8,
    pub(crate) cid: u16,
    pub(crate) nsid: u32,
    pub(crate) range: BlockRange,
    pub(crate) transfer: Transfer,
    pub(crate) parts: Parts,
    pub(crate) order: Order,
    pub(crate) accounting: Accounting,
    /// The whole command, for admin and Fabrics commands.
    pub(crate) command: Option<Box<Command>>,
    /// The table of a Read or Write of several extents.
    pub(crate) extents: Option<Box<ExtentTable>>,
    /// The other half, if the command is fused.
    pub(crate) fused: Option<OtherHalf>,
    /// The answer's status, once it is known.
    pub(crate) status: Option<Status>,
    /// The answer's dwords 0 and 1.
    pub(crate) result: u64,
    /// Time stamps, while a trace is open.
    pub(crate) stamps: Option<Box<Stamps>>,
}

impl Slot {
    /// Returns the slot of a command that was just dispatched.
    pub(crate) fn dispatched(cid: u16, transitions: &mut Transitions) -> Self {
        let mut slot = Self {
            cid,
            ..Self::default()
        };
        slot.enter(CommandState::Dispatched, transitions);
        slot
    }

    #[inline]
    pub(crate) const fn state(&self) -> CommandState {
        self.state
    }

    /// Moves the command to another state, counts it there, and stamps it.
    ///
    /// # Panics
    /// When the state machine has no such move: then the core would lose the command.
    #[inline]
    pub(crate) fn enter(&mut self, next: CommandState, transitions: &mut Transitions) {
        let before = self.state;
        assert!(
            before.may_become(next),
            "a command goes from {} to {}",
            before.name(),
            next.name()
        );
        transitions.counts[next as usize] += 1;
        if let Some(stamps) = &mut self.stamps {
            stamps.charge(before.stage(), transitions.now);
        }
        tracing::trace!(cid = self.cid, state = next.name());
        self.state = next;
    }

    /// Returns the namespace that pays tokens: a Flush of all namespaces pays for them one by one.
    pub(crate) const fn paying_namespace(&self) -> u32 {
        if self.nsid == NSID_BROADCAST {
            self.parts.next + 1
        } else {
            self.nsid
        }
    }

    /// Returns the operation of the command's requests to its device; `None` if it makes none.
    #[inline]
    pub(crate) const fn operation(&self) -> Option<Operation> {
        self.kind
            .operation(self.range.durable, self.range.deallocate)
    }

    /// Returns true if the command sends its device several requests, one after another.
    pub(crate) fn has_parts(&self) -> bool {
        self.range.listed || self.kind.row().form == Form::Flush
    }

    /// Returns true for the Write of a fused pair.
    pub(crate) fn is_second_half(&self) -> bool {
        self.fused.is_some() && self.kind == CommandKind::Write
    }

    /// Returns true if the command may change a block; of a list, only the number of blocks is
    /// known.
    pub(crate) fn may_change(&self, lba: u64) -> bool {
        let listed = self.range.listed || self.extents.is_some();
        let inside = lba.wrapping_sub(self.range.lba) < u64::from(self.range.blocks);
        self.kind.changes_data() && (listed || inside)
    }

    /// Returns true if a device works on blocks for which the command has no buffer.
    pub(crate) fn works_without_buffer(&self) -> bool {
        let operation = self.operation();
        operation.is_some_and(|operation| !operation.has_data() && operation != Operation::Flush)
    }

    /// Returns true if the command's data goes to the host with the answer.
    pub(crate) fn sends_data(&self) -> bool {
        self.kind.sends_data() && self.status.is_some_and(Status::is_success)
    }

    /// Returns the number of data PDUs that go to the host with the answer.
    pub(crate) fn answer_pdus(&self) -> usize {
        self.extents_sent().max(1)
    }

    /// Returns the number of extents of which data goes to the host with the answer.
    pub(crate) fn extents_sent(&self) -> usize {
        let table = self.extents.as_ref();
        table.map_or(0, |table| {
            if self.sends_data() {
                table.extents.len()
            } else {
                table.sent
            }
        })
    }

    /// Returns the bytes of data that go to the host with the answer.
    pub(crate) fn answer_bytes(&self) -> u32 {
        if let Some(table) = &self.extents {
            return table.bytes_of(self.extents_sent());
        }
        let bytes = if self.sends_data() {
            self.transfer.data.as_ref().map_or(0, |data| data.len())
        } else {
            0
        };
        u32::try_from(bytes).expect("a transfer is at most 1 MiB")
    }
}

/// Returns the status for the result of a device request.
pub(crate) fn status_of_result(result: Result<(), BlockError>, kind: CommandKind) -> Status {
    match result {
        Err(error) if !mutation::active(Mutation::DeviceErrorHidden) => status_of(error, kind),
        _ => Status::SUCCESS,
    }
}

/// Returns the status for a device error.
fn status_of(error: BlockError, kind: CommandKind) -> Status {
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
        BlockError::Corrupt if kind.row().price.is_read() => {
            Status::UNRECOVERED_READ_ERROR.with_dnr()
        }
        BlockError::Corrupt => Status::WRITE_FAULT,
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
        assert_eq!(Ticket::part(ticket.tag()), None);
        for part in [0, 63] {
            let tag = ticket.part_tag(part);
            assert_eq!(
                (Ticket::from_tag(tag), Ticket::part(tag)),
                (ticket, Some(part))
            );
        }
    }

    #[test]
    fn an_idle_slot_is_small() {
        // With this size, 128 slots stay below the memory limit of an idle connection, 64 KiB.
        assert!(size_of::<Slot>() <= 200, "{}", size_of::<Slot>());
    }

    #[test]
    fn moves_are_counted_where_they_lead() {
        let (mut slot, mut counts) = (Slot::default(), Transitions::default());
        for state in [
            CommandState::Dispatched,
            CommandState::Executing,
            CommandState::Answering,
        ] {
            slot.enter(state, &mut counts);
            assert_eq!((slot.state(), counts.of(state)), (state, 1));
        }
        assert_eq!(counts.of(CommandState::Arriving), 0);
    }

    #[test]
    #[should_panic(expected = "a command goes from free to executing")]
    fn a_free_slot_executes_nothing() {
        Slot::default().enter(CommandState::Executing, &mut Transitions::default());
    }

    #[test]
    fn an_answer_that_waits_is_the_end() {
        assert!(CommandState::Answering.may_become(CommandState::Free));
        for state in [
            CommandState::Executing,
            CommandState::Transferring,
            CommandState::Arriving,
        ] {
            assert!(
                !CommandState::Answering.may_become(state),
                "{}",
                state.name()
            );
        }
    }
}
