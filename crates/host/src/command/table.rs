//! The command table of a queue: commands in flight, by command identifier.
//!
//! A fixed number of slots. A command identifier has the slot's number in the low bits and, above
//! them, the number of uses of the slot, so that a late answer to an old command matches none.
//! Owned by a [`Qpair`](crate::qpair::Qpair). The I/O path neither searches, hashes nor allocates
//! here.

#[cfg(test)]
mod tests;

use crate::command::exchange::{Direction, Exchange, Work};
use crate::limits::{QUEUE_DEPTH_MAX, R2T_PER_COMMAND_MAX, TIMEOUT_SCAN};
use base::mutation::{self, Mutation};
use base::{ShortQueue, Time};
use reactor::IoSlice;
use wire::nvme::{Completion, Status};

/// End of a command.
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
    /// The host aborted it because it timed out, and the controller answered it.
    TimedOut,
    /// The connection ended first: the command may or may not have been executed.
    Lost,
}

/// An R2T that the host has not fulfilled yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) tag: u16,
    /// Next byte to send.
    pub(crate) offset: u32,
    /// Bytes left to send.
    pub(crate) left: u32,
}

/// The R2Ts of a command that are not fulfilled, in order of arrival.
#[derive(Clone, Copy, Debug)]
struct Transfers {
    list: [Transfer; R2T_PER_COMMAND_MAX],
    count: u8,
}

impl Transfers {
    const NONE: Self = Self {
        list: [Transfer {
            tag: 0,
            offset: 0,
            left: 0,
        }; R2T_PER_COMMAND_MAX],
        count: 0,
    };

    /// Returns the oldest one.
    fn first(&mut self) -> Option<&mut Transfer> {
        self.list[..usize::from(self.count)].first_mut()
    }

    /// Returns false if there are too many.
    fn push(&mut self, transfer: Transfer) -> bool {
        let Some(place) = self.list.get_mut(usize::from(self.count)) else {
            return false;
        };
        *place = transfer;
        self.count += 1;
        true
    }

    /// Drops the oldest one.
    fn pop(&mut self) {
        assert!(self.count > 0, "an R2T is fulfilled once");
        self.list.rotate_left(1);
        self.count -= 1;
    }
}

/// A slot of the table: the fields that every command needs, in two cache lines, because the
/// payload of a deep queue evicts the table from the nearest cache between a command and its
/// answer.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    state: SlotState,
    generation: u16,
    /// Next free slot in the free list, while this one is free.
    next_free: u16,
    pub(crate) exchange: Option<Exchange>,
    /// Bytes of the data, also while the slice is elsewhere.
    pub(crate) data_bytes: u32,
    /// Bytes received so far; the next must continue there.
    pub(crate) received: u32,
    /// True if a data digest did not match.
    pub(crate) damaged: bool,
    /// True if there are R2Ts that are not fulfilled.
    has_transfers: bool,
    /// Time at which the command times out.
    pub(crate) deadline: Time,
    /// Number of times that its time-out may be [put off](CommandTable::excuse), and [`ABORTING`].
    late: u8,
}

/// An abort of the command was requested.
const ABORTING: u8 = 1 << 7;

const _: () = assert!(size_of::<Slot>() == 128, "two lines of the cache");

impl Slot {
    /// Returns true if an abort was requested.
    pub(crate) const fn is_aborting(&self) -> bool {
        self.late & ABORTING != 0
    }

    /// Marks the command as being aborted; the Abort has its own time-out.
    pub(crate) const fn abort(&mut self) {
        self.late = ABORTING | 1;
    }

    /// Marks that the request no longer waits for the answer; the command gets a new time-out.
    pub(crate) const fn detach(&mut self, deadline: Time) {
        self.late = 1;
        self.deadline = deadline;
    }

    /// Notes that requested data is sent only now, so the answer comes after that.
    pub(crate) const fn progress(&mut self) {
        self.late = self.late & ABORTING | 2;
    }

    const fn empty(next_free: u16) -> Self {
        Self {
            state: SlotState::Free,
            generation: 0,
            next_free,
            exchange: None,
            data_bytes: 0,
            received: 0,
            damaged: false,
            has_transfers: false,
            deadline: Time::NEVER,
            late: 1,
        }
    }

    /// Moves to another state.
    ///
    /// # Panics
    /// If the state machine does not allow it: a request would end twice, or never.
    #[inline]
    fn enter(&mut self, next: SlotState) {
        assert!(
            next.follows(self.state),
            "{} does not follow {}",
            next.name(),
            self.state.name()
        );
        self.state = next;
    }

    /// Returns true if it has R2Ts that are not fulfilled.
    pub(crate) fn has_transfers(&self) -> bool {
        self.has_transfers
    }
}

/// The slots of one queue.
#[derive(Debug)]
pub(crate) struct CommandTable {
    slots: Vec<Slot>,
    /// The R2Ts of each slot.
    transfers: Vec<Transfers>,
    /// The answer of each slot in state `Answered`.
    answers: Vec<Completion>,
    /// Mark of the last send that carries data of each slot's command, by the connection's count of
    /// sends; 0 if none does. Only for commands that send data.
    marks: Vec<u64>,
    /// Head of the free list: the slot that became free last, which is occupied next.
    first_free: u16,
    /// Number of occupied slots.
    occupied: usize,
    /// Number of low bits of a command identifier that are the slot's number.
    index_bits: u32,
    /// Slots of finished commands, in order, for the owner to take.
    finished: ShortQueue<(u16, Outcome)>,
    /// Commands in flight without a time-out.
    patient: usize,
}

impl CommandTable {
    /// A table for `depth` commands.
    pub(crate) fn new(depth: u16) -> Self {
        assert!(
            (1..=QUEUE_DEPTH_MAX).contains(&depth),
            "checked with the options"
        );
        Self {
            slots: (0..depth).map(|index| Slot::empty(index + 1)).collect(),
            transfers: vec![Transfers::NONE; usize::from(depth)],
            answers: vec![Completion::new(0, 0, Status::SUCCESS); usize::from(depth)],
            marks: vec![0; usize::from(depth)],
            first_free: 0,
            occupied: 0,
            index_bits: u32::from(depth.next_power_of_two()).trailing_zeros(),
            finished: ShortQueue::with_capacity(usize::from(depth)),
            patient: 0,
        }
    }

    /// Returns the number of commands that may be outstanding.
    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of commands that are outstanding, or finished but not taken yet.
    pub(crate) fn len(&self) -> usize {
        self.occupied
    }

    /// Returns true if any of them can become [`overdue`](Self::overdue).
    pub(crate) fn is_timed(&self) -> bool {
        self.len() > self.patient
    }

    /// Puts a command into a free slot.
    ///
    /// # Panics
    /// If there is no free slot: the caller must check.
    #[inline]
    pub(crate) fn insert(&mut self, exchange: Exchange, deadline: Time) -> u16 {
        assert!(self.len() < self.depth(), "the caller asked for room");
        let index = self.first_free;
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.exchange.is_none(), "a slot has one command");
        self.first_free = slot.next_free;
        self.occupied += 1;
        slot.enter(SlotState::Queued);
        slot.data_bytes = u32::try_from(exchange.data_bytes()).expect("at most a transfer");
        slot.received = 0;
        slot.damaged = false;
        slot.has_transfers = false;
        slot.deadline = deadline;
        slot.late = 1;
        if exchange.direction == Direction::Out {
            self.marks[usize::from(index)] = 0;
        }
        slot.exchange = Some(exchange);
        self.patient += usize::from(deadline == Time::NEVER);
        index
    }

    /// Returns the identifier of the command in a slot.
    pub(crate) fn cid(&self, index: u16) -> u16 {
        let slot = &self.slots[usize::from(index)];
        if mutation::active(Mutation::CommandIdReused) && index == 1 {
            return self.cid(0);
        }
        // With a slot number of 16 bits there is no room for a generation.
        index | slot.generation.checked_shl(self.index_bits).unwrap_or(0)
    }

    /// Returns the slot of the outstanding command with this identifier.
    pub(crate) fn find(&self, cid: u16) -> Option<u16> {
        let index = cid & !u16::MAX.checked_shl(self.index_bits).unwrap_or(0);
        let slot = self.slots.get(usize::from(index))?;
        let live = slot.state == SlotState::Outstanding && self.cid(index) == cid;
        live.then_some(index)
    }

    /// Marks the command of a slot as sent, or in a send.
    #[inline]
    pub(crate) fn sent(&mut self, index: u16) {
        self.slots[usize::from(index)].enter(SlotState::Outstanding);
    }

    pub(crate) fn slot(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// Prefetches the slot of an identifier that is needed soon. Only a hint, so the identifier may
    /// be invalid.
    #[inline]
    pub(crate) fn prefetch(&self, cid: u16) {
        let index = cid & !u16::MAX.checked_shl(self.index_bits).unwrap_or(0);
        if let Some(slot) = self.slots.get(usize::from(index)) {
            reactor::prefetch(slot);
        }
    }

    /// Returns the oldest R2T of a slot that is not fulfilled.
    pub(crate) fn transfer(&mut self, index: u16) -> Option<&mut Transfer> {
        if !self.slots[usize::from(index)].has_transfers {
            return None;
        }
        self.transfers[usize::from(index)].first()
    }

    /// Stores an R2T; false if there are too many.
    pub(crate) fn push_transfer(&mut self, index: u16, transfer: Transfer) -> bool {
        let slot = &mut self.slots[usize::from(index)];
        let transfers = &mut self.transfers[usize::from(index)];
        if !slot.has_transfers {
            *transfers = Transfers::NONE;
        }
        slot.has_transfers = true;
        transfers.push(transfer)
    }

    /// Removes the oldest R2T of a slot, which is fulfilled.
    pub(crate) fn pop_transfer(&mut self, index: u16) {
        let transfers = &mut self.transfers[usize::from(index)];
        transfers.pop();
        self.slots[usize::from(index)].has_transfers = transfers.count > 0;
    }

    /// Notes that the send with this mark carries data of the command.
    #[inline]
    pub(crate) fn carried_by(&mut self, index: u16, mark: u64) {
        self.marks[usize::from(index)] = mark;
    }

    /// Returns the mark of the last send that carries data of the command; 0 if none does.
    #[inline]
    pub(crate) fn mark(&self, index: u16) -> u64 {
        let index = usize::from(index);
        let exchange = self.slots[index].exchange.as_ref();
        let sends = exchange.is_some_and(|exchange| exchange.direction == Direction::Out);
        if sends { self.marks[index] } else { 0 }
    }

    /// Returns the answer of a command that was answered while a send still read its data.
    pub(crate) fn early_answer(&self, index: u16) -> Option<Completion> {
        let index = usize::from(index);
        (self.slots[index].state == SlotState::Answered).then(|| self.answers[index])
    }

    /// Ends a command with the controller's answer. While a send still reads its data
    /// (`is_carried`, or the data is shared) it only becomes `Answered`. Returns true if it is
    /// finished.
    pub(crate) fn answer(&mut self, index: u16, completion: Completion, is_carried: bool) -> bool {
        let slot = &mut self.slots[usize::from(index)];
        let exchange = slot
            .exchange
            .as_mut()
            .expect("answered commands are occupied");
        slot.has_transfers = false;
        if is_carried || !exchange.reclaim() {
            slot.enter(SlotState::Answered);
            self.answers[usize::from(index)] = completion;
            return false;
        }
        let timed_out = slot.is_aborting() && completion.status.is(Status::ABORTED_BY_REQUEST);
        let outcome = if timed_out {
            Outcome::TimedOut
        } else {
            Outcome::Answered(completion)
        };
        self.release(index, outcome);
        true
    }

    /// Ends the command of a slot; its owner takes it next.
    fn release(&mut self, index: u16, outcome: Outcome) {
        let slot = &mut self.slots[usize::from(index)];
        slot.enter(SlotState::Finished);
        slot.generation = slot.generation.wrapping_add(1);
        self.patient -= usize::from(slot.deadline == Time::NEVER);
        slot.deadline = Time::NEVER;
        // [NVMe Base 2.0 §3.3.3.1]: FFFFh means "no command" in the error log.
        if self.cid(index) == 0xffff {
            let slot = &mut self.slots[usize::from(index)];
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.finished.push_back((index, outcome));
    }

    /// Takes the oldest finished command out of the table.
    pub(crate) fn take_finished(&mut self) -> Option<Finished> {
        let (index, outcome) = self.finished.pop_front()?;
        let exchange = self.vacate(index);
        Some(Finished { exchange, outcome })
    }

    /// Takes the oldest finished command out of the table if it was the only or last command of a
    /// block request and succeeded. Returns its tag and data, and the number in the channel of the
    /// namespace in which it wrote possibly cached data.
    #[inline]
    pub(crate) fn take_done(&mut self) -> Option<(u64, Option<IoSlice>, Option<u16>)> {
        let &(index, Outcome::Answered(completion)) = self.finished.front()? else {
            return None;
        };
        let slot = &mut self.slots[usize::from(index)];
        let exchange = slot.exchange.as_mut()?;
        let request = exchange.request().copied()?;
        let done = completion.status.is_success() && !exchange.replayed && request.is_plain_end();
        if !done || exchange.detached {
            return None;
        }
        let cached = request.is_cached().then_some(request.namespace);
        let (tag, data) = (exchange.tag, exchange.data.take());
        self.finished.pop_front();
        slot.exchange = None;
        self.free(index);
        Some((tag, data, cached))
    }

    /// Takes the newest finished command out of the table if it is an admin command with this tag.
    /// Submitters choose the tags of requests freely, so these never match.
    pub(crate) fn take_newest(&mut self, tag: u64) -> Option<Exchange> {
        let &(index, _) = self.finished.back()?;
        let exchange = self.slots[usize::from(index)].exchange.as_ref()?;
        if exchange.tag != tag || !matches!(exchange.work, Work::Admin(_)) {
            return None;
        }
        self.finished.pop_back();
        Some(self.vacate(index))
    }

    /// Returns the first slot from `start` on whose command is not answered and matches `which`.
    pub(crate) fn unanswered(
        &self,
        start: u16,
        which: impl Fn(&Exchange) -> bool,
    ) -> Option<(u16, &Exchange)> {
        let open = |slot: &Slot| matches!(slot.state, SlotState::Queued | SlotState::Outstanding);
        let slots = self.slots.iter().enumerate().skip(usize::from(start));
        let mut commands = slots.filter(|(_, slot)| open(slot));
        commands.find_map(|(index, slot)| {
            let exchange = slot.exchange.as_ref().filter(|exchange| which(exchange))?;
            Some((u16::try_from(index).expect("at most the depth"), exchange))
        })
    }

    /// Removes a command that was not sent.
    pub(crate) fn withdraw(&mut self, index: u16) -> Exchange {
        self.release(index, Outcome::Lost);
        self.finished.pop_back();
        self.vacate(index)
    }

    fn vacate(&mut self, index: u16) -> Exchange {
        let exchange = self.slots[usize::from(index)].exchange.take();
        self.free(index);
        exchange.expect("a finished command keeps its slot until it is taken")
    }

    /// Frees a slot. The next command reuses it, because it is still in the cache.
    #[inline]
    fn free(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        slot.enter(SlotState::Free);
        slot.next_free = std::mem::replace(&mut self.first_free, index);
        self.occupied -= 1;
    }

    /// Ends every command as lost; no send or receive holds its data any more.
    pub(crate) fn lose_all(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let outcome = match slot.state {
                SlotState::Free | SlotState::Finished => continue,
                SlotState::Answered => Outcome::Answered(self.answers[index]),
                SlotState::Queued | SlotState::Outstanding => Outcome::Lost,
            };
            if let Some(exchange) = &mut slot.exchange {
                let reclaimed = exchange.reclaim();
                assert!(reclaimed, "no send holds data of a closed connection");
            }
            self.release(u16::try_from(index).expect("at most the depth"), outcome);
        }
        assert!(self.patient == 0, "no command is under way any more");
    }

    /// Handles an absence of the core, which took no answers from `since` until `now`: commands
    /// that became [`overdue`](Self::overdue) meanwhile get that much more time, at most until
    /// `latest`. Each command gets this once, and once more after an R2T, because the next pass
    /// finds every answer that had arrived by now. `again`: some of these answers are still unread,
    /// so the extension is not counted.
    pub(crate) fn excuse(&mut self, since: Time, now: Time, latest: Time, again: bool) {
        let away = now.since(since);
        let late = |slot: &&mut Slot| {
            let has_excuse = again || slot.late & !ABORTING > 0;
            slot.deadline <= now && slot.state != SlotState::Free && has_excuse
        };
        for slot in self.slots.iter_mut().filter(late) {
            let least = now + TIMEOUT_SCAN;
            slot.deadline = (slot.deadline + away).max(least).min(latest);
            slot.late -= u8::from(!again);
        }
    }

    /// Returns the slot of the first command from `start` on that has timed out.
    pub(crate) fn overdue(&self, start: u16, now: Time) -> Option<u16> {
        let late = self.slots[usize::from(start)..]
            .iter()
            .position(|slot| slot.deadline <= now && slot.state != SlotState::Free)?;
        Some(start + u16::try_from(late).expect("at most the depth"))
    }
}

base::states! {
    /// State of a slot's command.
    ///
    /// ```text
    ///         insert            sent              answer, lost             taken
    ///  Free ────────► Queued ─────────► Outstanding ─────────► Finished ─────────► Free
    ///                    │                   │                    ▲
    ///                    │ lost              │ answered while a   │ the send is over,
    ///                    │                   ▼ send reads its data│ or the connection
    ///                    │               Answered ────────────────┤
    ///                    └────────────────────────────────────────┘
    /// ```
    pub(crate) enum SlotState {
        /// The slot is free.
        Free = "free",
        /// It waits for room in a send.
        Queued = "queued",
        /// It was sent, or is in a send.
        Outstanding = "outstanding",
        /// It was answered while a send still read its data; the table keeps the answer.
        Answered = "answered",
        /// It is finished, and its owner has not taken it yet.
        Finished = "finished",
    }
}

impl SlotState {
    #[inline]
    fn follows(self, before: Self) -> bool {
        match self {
            Self::Free => before == Self::Finished,
            Self::Queued => before == Self::Free,
            Self::Outstanding => before == Self::Queued,
            Self::Answered => matches!(before, Self::Outstanding | Self::Answered),
            Self::Finished => {
                matches!(before, Self::Queued | Self::Outstanding | Self::Answered)
            }
        }
    }
}
