//! The commands outstanding on one connection.
//!
//! The table grows with use up to the size agreed on at Connect, so a connection that never has two
//! commands at a time has memory for one. A table that has grown allocates nothing; periodically,
//! an idle one frees the slots that it did not need since the last time.

use crate::command::table::CommandKind;
use crate::request::{CommandState, Slot, Transitions};
use base::Time;
use base::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use wire::fabrics::Connect;
use wire::nvme::opcode::AdminOpcode;

/// Entries of a queue before Connect sets its size: for Connect itself.
const ENTRIES_BEFORE_CONNECT: u32 = 2;

/// Value of a free slot in place of a command identifier.
const NO_CID: u32 = u32::MAX;

/// The queue of one connection.
#[derive(Debug)]
pub(crate) struct CommandTable {
    /// QID: 0 for the admin queue.
    pub(crate) id: u16,
    /// Entries of the submission queue.
    entries: u32,
    slots: Vec<Slot>,
    /// The command identifiers of the slots, contiguous for a fast search.
    cids: Vec<u32>,
    free: Vec<u16>,
    used: u32,
    /// Most commands at a time since the last trim.
    peak: u16,
    sq_head: u16,
    /// SQHD is reported, because the host did not disable SQ flow control.
    pub(crate) flow_control: bool,
    /// The next completion answers the Connect that disabled SQ flow control.
    announces: bool,
}

/// Terms of Connect and the current position of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// QID.
    pub(crate) id: u16,
    pub(crate) entries: u32,
    sq_head: u16,
    flow_control: bool,
}

impl CommandTable {
    pub(crate) const fn new() -> Self {
        Self {
            id: 0,
            entries: ENTRIES_BEFORE_CONNECT,
            slots: Vec::new(),
            cids: Vec::new(),
            free: Vec::new(),
            used: 0,
            peak: 0,
            sq_head: 0,
            flow_control: true,
            announces: false,
        }
    }

    /// Sets the terms of the queue, with `entries` entries, at Connect.
    pub(crate) fn connect(&mut self, id: u16, entries: u32, flow_control: bool) {
        assert!(
            entries > 0 && self.used <= entries,
            "Connect takes an entry"
        );
        self.id = id;
        self.entries = entries;
        self.flow_control = flow_control;
        self.announces = !flow_control;
        // Connect was the first command and used the first entry.
        self.sq_head = 1;
    }

    /// Returns the terms and position of a queue without commands.
    pub(crate) const fn terms(&self) -> Terms {
        assert!(self.used == 0, "no command is left behind");
        Terms {
            id: self.id,
            entries: self.entries,
            sq_head: self.sq_head,
            flow_control: self.flow_control,
        }
    }

    /// Continues with the terms and position that the queue had on another core.
    pub(crate) const fn accept(&mut self, terms: Terms) {
        assert!(self.used == 0, "commands were taken under other terms");
        self.id = terms.id;
        self.entries = terms.entries;
        self.sq_head = terms.sq_head;
        self.flow_control = terms.flow_control;
    }

    pub(crate) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the number of commands in the table.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    /// Advances the submission queue head by one command.
    #[inline]
    pub(crate) fn consumed(&mut self) {
        if mutation::active(Mutation::SqHeadStands) {
            return;
        }
        let next = u32::from(self.sq_head) + 1;
        self.sq_head = if next >= self.entries {
            0
        } else {
            self.sq_head + 1
        };
    }

    /// Returns SQHD for a completion.
    #[inline]
    pub(crate) const fn reported_head(&self) -> u16 {
        if self.flow_control { self.sq_head } else { 0 }
    }

    /// Returns SQHD for the completion of Connect, by which the host learns whether SQ flow control
    /// is disabled. `[NVMe Base 2.0 §6.3]`
    pub(crate) fn take_announcement(&mut self) -> Option<u16> {
        std::mem::take(&mut self.announces).then_some(Connect::SQHD_WITHOUT_FLOW_CONTROL)
    }

    /// Returns the slot of an outstanding command.
    #[inline]
    pub(crate) fn find(&self, cid: u16) -> Option<u16> {
        if self.used == 0 {
            return None;
        }
        let position = self
            .cids
            .iter()
            .position(|&other| other == u32::from(cid))?;
        u16::try_from(position).ok()
    }

    /// Takes a slot for a command; `None` when the queue is full.
    pub(crate) fn take(&mut self, cid: u16, transitions: &mut Transitions) -> Option<u16> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.slots.len() as u64) < u64::from(self.entries) => {
                let slot = u16::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot::default());
                self.cids.push(NO_CID);
                // Room for every slot, so that freeing a slot never allocates.
                self.free.reserve(self.slots.len());
                slot
            }
            None => return None,
        };
        assert!(
            self.cids[usize::from(slot)] == NO_CID,
            "a slot has one command"
        );
        self.used += 1;
        self.peak = self.peak.max(u16::try_from(self.used).unwrap_or(u16::MAX));
        self.cids[usize::from(slot)] = u32::from(cid);
        self.slots[usize::from(slot)] = Slot::dispatched(cid, transitions);
        Some(slot)
    }

    /// Frees the slot of a command that is answered or needs no answer.
    pub(crate) fn give_back(&mut self, slot: u16) {
        let index = usize::from(slot);
        assert!(
            self.slots[index].state() != CommandState::Free,
            "a slot is given back once"
        );
        self.slots[index] = Slot::default();
        self.cids[index] = NO_CID;
        self.free.push(slot);
        self.used -= 1;
    }

    /// Frees memory if no command is outstanding and the table has more than twice the most
    /// commands at a time since the last call: a table grows at once and shrinks slowly. Returns
    /// the number of remaining slots.
    pub(crate) fn trim(&mut self) -> usize {
        let needed = 2 * usize::from(self.peak);
        self.peak = u16::try_from(self.used).unwrap_or(u16::MAX);
        if self.used == 0 && needed < self.slots.len() {
            self.slots.truncate(needed);
            self.slots.shrink_to_fit();
            self.cids.truncate(needed);
            self.cids.shrink_to_fit();
            self.free.retain(|&slot| usize::from(slot) < needed);
            self.free.shrink_to(needed);
        }
        self.slots.len()
    }

    /// Returns an iterator over the outstanding commands.
    fn taken_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        let some = self.used > 0;
        let slots = some.then(|| self.slots.iter_mut());
        let slots = slots.into_iter().flatten();
        slots.filter(|slot| slot.state() != CommandState::Free)
    }

    /// Returns the commands that wait for data by R2T: the time of the R2T and the namespace.
    pub(crate) fn asked(&mut self) -> impl Iterator<Item = (Time, u32)> {
        let taken = self.taken_mut();
        let asked = taken.filter(|slot| slot.state() == CommandState::Transferring);
        asked.map(|slot| (slot.accounting.submitted, slot.nsid))
    }

    /// Returns a slot that the caller knows to be in use.
    #[inline]
    pub(crate) fn slot(&mut self, slot: u16) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    /// Returns a slot that a peer or a possibly stale ticket named.
    pub(crate) fn get(&mut self, slot: u16) -> Option<&mut Slot> {
        self.slots
            .get_mut(usize::from(slot))
            .filter(|slot| slot.state() != CommandState::Free)
    }

    /// Returns true while an admin command with this opcode is outstanding.
    pub(crate) fn awaits(&self, opcode: AdminOpcode) -> bool {
        let mut taken = self
            .slots
            .iter()
            .filter(|slot| slot.state() != CommandState::Free);
        taken.any(|slot| slot.kind == CommandKind::Admin && slot.opcode == opcode.0)
    }

    /// Returns true while answers with data to commands on a namespace (`None`: any) wait for
    /// space.
    pub(crate) fn has_unsent_data(&self, nsid: Option<u32>) -> bool {
        let mut answered = self
            .slots
            .iter()
            .filter(|slot| slot.state() == CommandState::Answering);
        answered.any(|slot| nsid.is_none_or(|nsid| slot.nsid == nsid) && slot.answer_bytes() > 0)
    }

    /// Returns true while a command that changes blocks is outstanding.
    pub(crate) fn changes_data(&self) -> bool {
        let mut taken = self
            .slots
            .iter()
            .filter(|slot| slot.state() != CommandState::Free);
        taken.any(|slot| slot.kind.changes_data())
    }

    /// Returns the slots of the commands that are executing.
    pub(crate) fn executing(&self) -> impl Iterator<Item = u16> {
        let used = if self.used > 0 { &self.slots[..] } else { &[] };
        let numbered = (0u16..).zip(used);
        let executing = numbered.filter(|(_, slot)| slot.state() == CommandState::Executing);
        executing.map(|(number, _)| number)
    }

    /// Returns the slots of all outstanding commands.
    pub(crate) fn occupied(&self) -> Vec<u16> {
        let numbered = (0u16..).zip(&self.slots);
        numbered
            .filter(|(_, slot)| slot.state() != CommandState::Free)
            .map(|(number, _)| number)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(table: &mut CommandTable, cid: u16) -> Option<u16> {
        table.take(cid, &mut Transitions::default())
    }

    #[test]
    fn a_full_queue_refuses_and_a_freed_slot_is_found_no_more() {
        let mut table = CommandTable::new();
        table.connect(1, 3, true);
        let slots: Vec<_> = (10..13)
            .map(|cid| take(&mut table, cid).expect("a place"))
            .collect();
        assert_eq!(take(&mut table, 99), None);
        assert_eq!(table.find(11), Some(slots[1]));
        table.give_back(slots[1]);
        assert_eq!(table.find(11), None);
        assert_eq!(table.used(), 2);
        assert_eq!(take(&mut table, 14), Some(slots[1]));
        assert_eq!(table.occupied().len(), 3);
    }

    #[test]
    fn an_idle_table_gives_back_what_it_did_not_need() {
        let mut table = CommandTable::new();
        table.connect(1, 1024, true);
        let burst = |table: &mut CommandTable, commands: u16| {
            let slots: Vec<_> = (0..commands).filter_map(|cid| take(table, cid)).collect();
            assert_eq!(slots.len(), usize::from(commands));
            slots
        };
        let slots = burst(&mut table, 1024);
        assert_eq!(table.trim(), 1024);
        for slot in slots {
            table.give_back(slot);
        }
        // All 1,024 were in use since the last call, so none is freed.
        assert_eq!(table.trim(), 1024);
        for slot in burst(&mut table, 3) {
            table.give_back(slot);
        }
        assert_eq!(table.trim(), 6);
        assert_eq!(table.trim(), 0);
        assert!(table.slots.capacity() + table.cids.capacity() + table.free.capacity() < 8);
        assert_eq!(burst(&mut table, 1024).len(), 1024);
        assert_eq!(take(&mut table, 0), None);
    }

    #[test]
    fn the_head_wraps_at_the_queue_size() {
        let mut table = CommandTable::new();
        table.connect(1, 4, true);
        let heads: Vec<_> = (0..5)
            .map(|_| {
                table.consumed();
                table.reported_head()
            })
            .collect();
        assert_eq!(heads, [2, 3, 0, 1, 2]);
    }
}
