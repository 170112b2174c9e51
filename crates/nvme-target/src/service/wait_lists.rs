//! Commands, and input of connections, that wait for a buffer or for their share of a core's
//! limited resources, in order: one list per buffer size, and one for all that wait for a share.
//!
//! The lists are doubly linked by the indices of their places. A waiting command knows its place
//! ([`Order::waits`](crate::request::Order::waits)) and leaves the list in constant time, because
//! hosts may abort any number of commands. Free places are reused, so there are never more places
//! than commands that waited at the same time.

use crate::request::Ticket;
use base::SlabKey;
use reactor::BufferPool;

/// Buffer sizes with a list of their own; larger sizes share the last list.
const SIZES: usize = 8;

/// Number of lists.
const LISTS: usize = 1 + SIZES;

/// Slot number in a ticket that refers to a connection's input, whose first command waits.
pub(crate) const INPUT: u16 = u16::MAX;

/// Number of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitsFor(u8);

impl WaitsFor {
    /// The list for shares. Its entries retry in turn whenever a resource is returned.
    pub(crate) const SHARE: Self = Self(0);

    /// Returns the list for a buffer of the pool's size class with this number, or of a larger one.
    pub(crate) fn buffer(size: usize) -> Self {
        let size = u8::try_from(size.min(SIZES - 1)).expect("less than 8");
        Self(1 + size)
    }

    /// Returns the list for a buffer of at least `bytes`.
    pub(crate) fn buffer_of(bytes: usize, pool: &BufferPool) -> Self {
        let mut sizes = pool.classes();
        let size = sizes.position(|class| class.bytes >= bytes && class.count > 0);
        Self::buffer(size.unwrap_or(SIZES))
    }

    /// Returns the lists for buffers, in order of size.
    pub(crate) fn buffers() -> impl Iterator<Item = Self> {
        (0..SIZES).map(Self::buffer)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the place that marks the end of the list.
    const fn end(self) -> u32 {
        self.0 as u32
    }
}

#[derive(Clone, Copy, Debug)]
struct WaitPlace {
    ticket: Ticket,
    list: WaitsFor,
    /// The previous place, or the end of the list; for a free place, the place itself.
    before: u32,
    /// The next place, or the end of the list; for a free place, the next free place, or 0.
    after: u32,
}

/// Ticket of the end of a list.
const NO_TICKET: Ticket = Ticket {
    connection: SlabKey {
        index: 0,
        generation: 0,
    },
    slot: 0,
};

/// The lists.
#[derive(Debug)]
pub(crate) struct WaitLists {
    /// The end marker of each list, before its first and after its last place; then the places.
    places: Vec<WaitPlace>,
    /// First free place; 0 for none.
    free: u32,
    lengths: [usize; LISTS],
    /// Number of accesses to places.
    #[cfg(test)]
    looks: usize,
}

impl WaitLists {
    /// Returns empty lists with memory for `capacity` commands.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let end = |list| WaitPlace {
            ticket: NO_TICKET,
            list: WaitsFor(list),
            before: list.into(),
            after: list.into(),
        };
        let mut places = Vec::with_capacity(capacity + LISTS);
        places.extend((0..).take(LISTS).map(end));
        Self {
            places,
            free: 0,
            lengths: [0; LISTS],
            #[cfg(test)]
            looks: 0,
        }
    }

    fn at(&mut self, place: u32) -> &mut WaitPlace {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        &mut self.places[place as usize]
    }

    /// Returns the number of commands in a list.
    pub(crate) const fn len(&self, list: WaitsFor) -> usize {
        self.lengths[list.index()]
    }

    /// Returns the number of commands in all lists.
    pub(crate) fn len_all(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Appends a command to a list. Returns its place, which is not 0.
    pub(crate) fn push(&mut self, list: WaitsFor, ticket: Ticket) -> u32 {
        let new = WaitPlace {
            ticket,
            list,
            before: 0,
            after: 0,
        };
        let place = self.free;
        let place = if place == 0 {
            self.places.push(new);
            u32::try_from(self.places.len() - 1).expect("commands have names of 32 bits")
        } else {
            self.free = std::mem::replace(self.at(place), new).after;
            place
        };
        let last = self.at(list.end()).before;
        self.link(place, last);
        self.lengths[list.index()] += 1;
        place
    }

    /// Removes the first command of a list.
    pub(crate) fn pop(&mut self, list: WaitsFor) -> Option<Ticket> {
        let first = self.at(list.end()).after;
        (first != list.end()).then(|| self.remove(first))
    }

    /// Removes the command at a place.
    pub(crate) fn remove(&mut self, place: u32) -> Ticket {
        assert!(place as usize >= LISTS, "the ends of the lists stay");
        let is_linked = self.places[place as usize].before != place;
        assert!(is_linked, "a command leaves its place once");
        self.unlink(place);
        let free = self.free;
        let left = self.at(place);
        (left.before, left.after) = (place, free);
        let WaitPlace { ticket, list, .. } = *left;
        self.free = place;
        self.lengths[list.index()] -= 1;
        ticket
    }

    /// Moves a command from the back of a list to its front. Returns false if it is not the last
    /// one.
    pub(crate) fn bring_forward(&mut self, list: WaitsFor, ticket: Ticket) -> bool {
        let is_last = self.is_last(list, ticket);
        if is_last {
            let last = self.at(list.end()).before;
            self.unlink(last);
            self.link(last, list.end());
        }
        is_last
    }

    /// Returns true if a command is the last of a list.
    pub(crate) fn is_last(&mut self, list: WaitsFor, ticket: Ticket) -> bool {
        let last = self.at(list.end()).before;
        last != list.end() && self.at(last).ticket == ticket
    }

    fn link(&mut self, place: u32, before: u32) {
        let after = std::mem::replace(&mut self.at(before).after, place);
        self.at(after).before = place;
        let linked = self.at(place);
        (linked.before, linked.after) = (before, after);
    }

    fn unlink(&mut self, place: u32) {
        let WaitPlace { before, after, .. } = *self.at(place);
        self.at(before).after = after;
        self.at(after).before = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::VecDeque;

    fn ticket(number: usize) -> Ticket {
        let slot = u16::try_from(number % 1024).expect("less than 1024");
        let index = u32::try_from(number / 1024).expect("few");
        let connection = SlabKey {
            index,
            generation: 0,
        };
        Ticket { connection, slot }
    }

    /// A command leaves its list in constant time: with linear time, N Aborts of N waiting commands
    /// would take quadratic time.
    #[test]
    fn a_command_leaves_without_a_look_at_the_others() {
        const COMMANDS: usize = 10_000;
        let mut lists = WaitLists::with_capacity(0);
        let push = |lists: &mut WaitLists, number| lists.push(WaitsFor::buffer(0), ticket(number));
        let places: Vec<_> = (0..COMMANDS)
            .map(|number| push(&mut lists, number))
            .collect();
        let memory = lists.places.len();
        lists.looks = 0;
        // The newest, the oldest, and the commands between them.
        let mut order: Vec<_> = (0..COMMANDS).rev().step_by(2).collect();
        order.extend((0..COMMANDS).step_by(2));
        for number in order {
            assert_eq!(lists.remove(places[number]), ticket(number));
        }
        assert!(lists.looks <= 4 * COMMANDS, "{} looks", lists.looks);
        assert_eq!(lists.len_all(), 0);
        assert_eq!(lists.pop(WaitsFor::buffer(0)), None);
        // Commands that arrive later, while the first one stays, take no further memory.
        push(&mut lists, 0);
        for number in 1..10 * COMMANDS {
            let place = push(&mut lists, number);
            lists.remove(place);
        }
        assert_eq!(lists.places.len(), memory);
        assert_eq!(lists.pop(WaitsFor::buffer(0)), Some(ticket(0)));
    }

    #[test]
    fn all_lists_keep_their_order_whatever_leaves() {
        let mut random = Prng::from_seed(3);
        let mut lists = WaitLists::with_capacity(8);
        let mut model = [(); LISTS].map(|()| VecDeque::new());
        let all: Vec<_> = WaitsFor::buffers().chain([WaitsFor::SHARE]).collect();
        let mut most = 0;
        for number in 0..20_000 {
            let list = all[usize::try_from(random.below(LISTS as u64)).expect("an index")];
            let expected = &mut model[list.index()];
            match random.below(5) {
                0 | 1 => {
                    let place = lists.push(list, ticket(number));
                    assert_ne!(place, 0);
                    expected.push_back((ticket(number), place));
                }
                2 => {
                    let first = expected.pop_front().map(|(ticket, _)| ticket);
                    assert_eq!(lists.pop(list), first);
                }
                3 if !expected.is_empty() => {
                    let at = random.below(expected.len() as u64);
                    let at = usize::try_from(at).expect("an index");
                    let (ticket, place) = expected.remove(at).expect("it is there");
                    assert_eq!(lists.remove(place), ticket);
                }
                _ => {
                    let last = expected.back().map(|(ticket, _)| *ticket);
                    assert!(!lists.bring_forward(list, ticket(number)));
                    if let Some(last) = last {
                        assert!(lists.bring_forward(list, last));
                        expected.rotate_right(1);
                    }
                }
            }
            for &list in &all {
                assert_eq!(lists.len(list), model[list.index()].len());
            }
            most = most.max(lists.len_all());
            assert_eq!(lists.places.len(), most + LISTS);
        }
    }
}
