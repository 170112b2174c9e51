//! The command table of a queue: who waits for which answer.
//!
//! A fixed number of slots. The command identifier on the wire is the slot's number in the low
//! bits and, above them, how often the slot was used, so that an answer to a command that is long
//! over finds nobody. Owned by a [`Qpair`](crate::tcp::Qpair); the I/O path neither searches nor
//! hashes nor allocates here.

use crate::limits::{QUEUE_DEPTH_MAX, R2T_PER_COMMAND_MAX};
use base::Time;
use base::units::Lba;
use block::Operation;
use reactor::IoSlice;
use std::collections::VecDeque;
use wire::nvme::{Command, Completion, Status};

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// There is none.
    None,
    /// From the controller.
    In,
    /// To the controller.
    Out,
}

/// A command with its data, on its way to the controller and back.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The submitter's name for it.
    pub(crate) tag: u64,
    /// The command; its identifier and data pointer are set when it is sent.
    pub(crate) command: Command,
    /// Which way the data goes.
    pub(crate) direction: Direction,
    /// The data: as long as the command asks for, shared while it is being sent.
    pub(crate) data: Option<IoSlice>,
    /// The data had other owners when it was submitted, and may have them when it goes back.
    pub(crate) lent: bool,
    /// What the block layer asked for; `None` for admin commands.
    pub(crate) request: Option<BlockRequest>,
    /// How often it timed out.
    pub(crate) timeouts: u8,
    /// How often it was sent again because the controller asked for that.
    pub(crate) retries: u8,
    /// It was lost with a connection: its range is locked against newer writes.
    pub(crate) replayed: bool,
}

/// The part of a block request that outlives one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest {
    pub(crate) operation: Operation,
    /// The range of the current command.
    pub(crate) lba: Lba,
    pub(crate) blocks: u32,
    /// Blocks beyond it that are still to be done, by further commands.
    pub(crate) blocks_left: u32,
    /// The data belongs to the command, not to the submitter.
    pub(crate) private_data: bool,
}

impl Exchange {
    /// An admin command.
    pub(crate) fn admin(tag: u64, command: Command, data_in: Option<IoSlice>) -> Self {
        Self {
            tag,
            command,
            direction: if data_in.is_some() {
                Direction::In
            } else {
                Direction::None
            },
            data: data_in,
            lent: false,
            request: None,
            timeouts: 0,
            retries: 0,
            replayed: false,
        }
    }

    /// Bytes of data.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, IoSlice::len)
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) exchange: Exchange,
    pub(crate) outcome: Outcome,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// The controller answered.
    Answered(Completion),
    /// We aborted it because it took too long, and the controller answered that it is over.
    TimedOut,
    /// The connection ended first: nobody knows whether it was done.
    Lost,
}

/// Where a slot's command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// There is none.
    Free,
    /// It waits for room in a send.
    Queued,
    /// It is with the controller, or in a send.
    Outstanding,
    /// It was answered while a send still read its data.
    Answered(Completion),
}

/// An R2T that we have not fulfilled yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) tag: u16,
    /// Next byte to send.
    pub(crate) offset: u32,
    /// Bytes left to send.
    pub(crate) left: u32,
}

/// A slot of the table.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    generation: u16,
    pub(crate) exchange: Option<Exchange>,
    /// Bytes of the data, also while the slice is away.
    pub(crate) data_bytes: u32,
    /// Bytes received so far; the next must continue there.
    pub(crate) received: u32,
    /// A data digest did not match.
    pub(crate) damaged: bool,
    /// R2Ts in order of arrival.
    transfers: [Transfer; R2T_PER_COMMAND_MAX],
    transfer_count: u8,
    /// When the command has taken too long.
    pub(crate) deadline: Time,
    /// We asked the controller to abort it.
    pub(crate) aborting: bool,
}

impl Slot {
    const fn empty() -> Self {
        let none = Transfer {
            tag: 0,
            offset: 0,
            left: 0,
        };
        Self {
            state: SlotState::Free,
            generation: 0,
            exchange: None,
            data_bytes: 0,
            received: 0,
            damaged: false,
            transfers: [none; R2T_PER_COMMAND_MAX],
            transfer_count: 0,
            deadline: Time::NEVER,
            aborting: false,
        }
    }

    /// The oldest unfulfilled R2T.
    pub(crate) fn transfer(&mut self) -> Option<&mut Transfer> {
        self.transfers[..usize::from(self.transfer_count)].first_mut()
    }

    /// Takes note of an R2T; false where there are too many.
    pub(crate) fn push_transfer(&mut self, transfer: Transfer) -> bool {
        let Some(place) = self.transfers.get_mut(usize::from(self.transfer_count)) else {
            return false;
        };
        *place = transfer;
        self.transfer_count += 1;
        true
    }

    /// The oldest R2T is fulfilled.
    pub(crate) fn pop_transfer(&mut self) {
        self.transfers.rotate_left(1);
        self.transfer_count -= 1;
    }

    pub(crate) fn has_transfers(&self) -> bool {
        self.transfer_count > 0
    }
}

/// The slots of one queue.
#[derive(Debug)]
pub(crate) struct CommandTable {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Bits of a command identifier that are the slot's number.
    index_bits: u32,
    /// Finished commands, for the owner to take.
    pub(crate) finished: VecDeque<Finished>,
}

impl CommandTable {
    /// A table for `depth` commands.
    pub(crate) fn new(depth: u16) -> Self {
        assert!(
            (1..=QUEUE_DEPTH_MAX).contains(&depth),
            "checked with the options"
        );
        Self {
            slots: (0..depth).map(|_| Slot::empty()).collect(),
            free: (0..depth).rev().collect(),
            index_bits: u32::from(depth.next_power_of_two()).trailing_zeros(),
            finished: VecDeque::with_capacity(usize::from(depth)),
        }
    }

    /// How many commands may be outstanding.
    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// How many are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts a command into a free slot.
    #[allow(clippy::result_large_err)] // The command is handed back, to be sent later.
    pub(crate) fn insert(&mut self, exchange: Exchange, deadline: Time) -> Result<u16, Exchange> {
        let Some(index) = self.free.pop() else {
            return Err(exchange);
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.state = SlotState::Queued;
        slot.data_bytes = u32::try_from(exchange.data_bytes()).expect("at most a transfer");
        slot.received = 0;
        slot.damaged = false;
        slot.transfer_count = 0;
        slot.deadline = deadline;
        slot.aborting = false;
        slot.exchange = Some(exchange);
        Ok(index)
    }

    /// The identifier of the command in a slot.
    pub(crate) fn cid(&self, index: u16) -> u16 {
        let slot = &self.slots[usize::from(index)];
        // With sixteen bits of number there is no room for a generation.
        index | slot.generation.checked_shl(self.index_bits).unwrap_or(0)
    }

    /// The slot of the outstanding command with this identifier.
    pub(crate) fn find(&self, cid: u16) -> Option<u16> {
        let index = cid & !u16::MAX.checked_shl(self.index_bits).unwrap_or(0);
        let slot = self.slots.get(usize::from(index))?;
        let live = slot.state == SlotState::Outstanding && self.cid(index) == cid;
        live.then_some(index)
    }

    pub(crate) fn slot(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// Ends a command with the controller's answer. While its data is still shared with a send it
    /// only becomes `Answered`; returns whether it is over.
    pub(crate) fn answer(&mut self, index: u16, completion: Completion) -> bool {
        let slot = &mut self.slots[usize::from(index)];
        let exchange = slot
            .exchange
            .as_mut()
            .expect("answered commands are occupied");
        slot.transfer_count = 0;
        if let Some(data) = exchange.data.take() {
            match data.into_exclusive() {
                Ok(data) => exchange.data = Some(data),
                // Nobody can change it while a send still reads it.
                Err(data) if exchange.lent => exchange.data = Some(data),
                Err(data) => {
                    exchange.data = Some(data);
                    slot.state = SlotState::Answered(completion);
                    return false;
                }
            }
        }
        let timed_out = slot.aborting && completion.status.is(Status::ABORTED_BY_REQUEST);
        let outcome = if timed_out {
            Outcome::TimedOut
        } else {
            Outcome::Answered(completion)
        };
        self.release(index, outcome);
        true
    }

    /// Frees a slot and hands its command to the owner.
    fn release(&mut self, index: u16, outcome: Outcome) {
        let slot = &mut self.slots[usize::from(index)];
        let exchange = slot
            .exchange
            .take()
            .expect("released commands are occupied");
        slot.state = SlotState::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.deadline = Time::NEVER;
        // [NVMe Base 2.0 §3.3.3.1]: FFFFh means "no command" in the error log.
        if self.cid(index) == 0xffff {
            let slot = &mut self.slots[usize::from(index)];
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.free.push(index);
        self.finished.push_back(Finished { exchange, outcome });
    }

    /// Ends every command as lost; no send and no receive holds their data any more.
    pub(crate) fn lose_all(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let outcome = match slot.state {
                SlotState::Free => continue,
                SlotState::Answered(completion) => Outcome::Answered(completion),
                SlotState::Queued | SlotState::Outstanding => Outcome::Lost,
            };
            if let Some(exchange) = &mut slot.exchange
                && let Some(data) = exchange.data.take()
            {
                let data = data.into_exclusive();
                exchange.data = Some(data.unwrap_or_else(|shared| {
                    assert!(exchange.lent, "no send holds data of a closed connection");
                    shared
                }));
            }
            self.release(u16::try_from(index).expect("at most the depth"), outcome);
        }
    }

    /// The first command from `start` on that has taken too long: its slot.
    pub(crate) fn overdue(&self, start: u16, now: Time) -> Option<u16> {
        let late = self.slots[usize::from(start)..]
            .iter()
            .position(|slot| slot.deadline <= now && slot.state != SlotState::Free)?;
        Some(start + u16::try_from(late).expect("at most the depth"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(tag: u64) -> Exchange {
        Exchange::admin(tag, Command::new(0x18, 0), None)
    }

    #[test]
    fn an_answer_to_an_old_command_finds_nobody() {
        let mut table = CommandTable::new(2);
        let slot = table.insert(exchange(1), Time::NEVER).unwrap();
        let old = table.cid(slot);
        assert_eq!(table.find(old), None, "not sent yet");
        table.slot(slot).state = SlotState::Outstanding;
        assert_eq!(table.find(old), Some(slot));
        assert!(table.answer(slot, Completion::new(old, 0, Status::SUCCESS)));
        assert_eq!(table.find(old), None);
        let again = table.insert(exchange(2), Time::NEVER).unwrap();
        table.slot(again).state = SlotState::Outstanding;
        assert_eq!(again, slot);
        assert_ne!(table.cid(again), old);
        assert_eq!(table.find(old), None);
        assert_eq!(table.find(0xffff), None);
        assert_eq!(table.finished.pop_front().unwrap().exchange.tag, 1);
    }

    #[test]
    fn a_full_table_hands_the_command_back_and_loses_each_once() {
        let mut table = CommandTable::new(3);
        for tag in 0..3 {
            table.insert(exchange(tag), Time(tag)).unwrap();
        }
        assert_eq!(table.len(), table.depth());
        assert_eq!(table.insert(exchange(9), Time::NEVER).unwrap_err().tag, 9);
        assert_eq!(table.overdue(0, Time(1)), Some(0));
        assert_eq!(table.overdue(2, Time(1)), None);
        table.lose_all();
        let tags: Vec<_> = table.finished.drain(..).map(|f| f.exchange.tag).collect();
        assert_eq!(tags, [0, 1, 2]);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn transfers_are_a_short_queue() {
        let mut slot = Slot::empty();
        for tag in (0..).take(R2T_PER_COMMAND_MAX) {
            assert!(slot.push_transfer(Transfer {
                tag,
                offset: 0,
                left: 1
            }));
        }
        assert!(!slot.push_transfer(Transfer {
            tag: 9,
            offset: 0,
            left: 1
        }));
        assert_eq!(slot.transfer().unwrap().tag, 0);
        slot.pop_transfer();
        assert_eq!(slot.transfer().unwrap().tag, 1);
        assert!(slot.has_transfers());
    }
}
