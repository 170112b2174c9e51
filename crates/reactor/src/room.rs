//! Rooms that are given back: their numbers are few, and devices come and go for ever.
//!
//! What is this: the table from which a driver hands rooms out. It owns one token for each room;
//! whoever has the room holds another one, so that a room is given back by dropping whatever owns
//! it, in whichever way that happens. What must never happen: that a completion of a former owner
//! reaches a new one. Hence a room waits until no operation of it is left in the driver, and until
//! all completions that had left the driver when it was found to be free were handed out.

use crate::op::Room;
use std::sync::Arc;

/// A room, until this is dropped.
#[derive(Debug)]
pub struct RoomLease {
    room: Room,
    /// Tells the table that the room is taken. `None`: the room is never used again.
    _token: Option<Arc<()>>,
}

impl RoomLease {
    /// A room that nobody else ever gets, from a driver that has no use for it afterwards.
    #[must_use]
    pub fn for_ever(room: Room) -> Self {
        Self { room, _token: None }
    }

    /// The room.
    #[must_use]
    pub fn room(&self) -> Room {
        self.room
    }
}

/// A room that was handed out.
#[derive(Debug)]
struct Entry {
    /// `None` for a room without a lease.
    token: Option<Arc<()>>,
    /// The turn of the driver's in which it was first seen to be free.
    free_since: Option<u64>,
}

/// All rooms of a driver, by number.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    entries: Vec<Entry>,
}

impl Rooms {
    /// A room for ever.
    ///
    /// # Panics
    /// When 2^16 rooms are taken at the same time.
    pub(crate) fn take(&mut self) -> Room {
        let number = u16::try_from(self.entries.len());
        let room = Room(number.expect("a core has fewer than 2^16 rooms at a time"));
        self.entries.push(Entry {
            token: None,
            free_since: None,
        });
        room
    }

    /// A room until the lease is dropped. `turn` is the number of the driver's turn, and
    /// `in_flight` says whether the driver still has an operation of a room.
    ///
    /// # Panics
    /// When 2^16 rooms are taken at the same time.
    pub(crate) fn lease(&mut self, turn: u64, in_flight: impl Fn(Room) -> bool) -> RoomLease {
        let mut reused = None;
        for (number, entry) in (0..).zip(&mut self.entries) {
            let free = entry
                .token
                .as_ref()
                .is_some_and(|token| Arc::strong_count(token) == 1);
            if !free {
                continue;
            }
            // What was reaped on the turn in which its owner went may not be handed out yet.
            let since = *entry.free_since.get_or_insert(turn);
            let room = Room(number);
            if reused.is_none() && since < turn && !in_flight(room) {
                entry.free_since = None;
                reused = Some(room);
            }
        }
        let room = reused.unwrap_or_else(|| self.take());
        let entry = &mut self.entries[usize::from(room.0)];
        let token = entry.token.get_or_insert_default();
        RoomLease {
            room,
            _token: Some(Arc::clone(token)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: fn(Room) -> bool = |_| false;

    #[test]
    fn a_room_is_reused_once_its_owner_and_all_of_its_operations_are_gone() {
        let mut rooms = Rooms::default();
        let for_ever = rooms.take();
        let first = rooms.lease(1, IDLE);
        let room = first.room();
        assert_ne!(room, for_ever);
        let second = rooms.lease(2, IDLE);
        assert_ne!(second.room(), room);
        drop(first);
        // Not on the turn in which it is found to be free, and not with anything in flight.
        let third = rooms.lease(3, IDLE);
        assert_ne!(third.room(), room);
        let fourth = rooms.lease(4, |busy| busy == room);
        assert_ne!(fourth.room(), room);
        assert_eq!(rooms.lease(5, IDLE).room(), room);
    }

    #[test]
    fn numbers_do_not_run_out() {
        let mut rooms = Rooms::default();
        let taken: Vec<_> = (0..10).map(|_| rooms.take()).collect();
        let held = rooms.lease(0, IDLE);
        for turn in 1..200_000 {
            let lease = rooms.lease(turn, IDLE);
            assert!(lease.room() != held.room() && !taken.contains(&lease.room()));
        }
        assert!(rooms.entries.len() < 20, "{}", rooms.entries.len());
    }
}
