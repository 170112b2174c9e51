//! The order of overlapping writes of different connections.
//!
//! A client that loses a connection repeats its writes on another one, and the protocol does not
//! identify which connection replaces which. So a write waits until the device has completed all
//! earlier overlapping writes of other connections, on any core and in any class: no write lands
//! after one that was acknowledged later. The client itself orders overlapping writes of one
//! connection.

use super::message::Message;
use super::peer::Peer;
use reactor::MailboxSender;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum write length of each size class, in bytes: an overlapping write of a class begins at
/// most this far before a range.
const LENGTHS: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, u64::MAX];

/// The place of a write in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    start: u64,
    number: u64,
    /// Index of its class in [`LENGTHS`].
    length: usize,
}

impl Ticket {
    /// The write's number in the order.
    pub(super) const fn number(self) -> u64 {
        self.number
    }
}

/// A byte range that a connection writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRange {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) connection: u64,
}

impl WriteRange {
    const fn conflicts_with(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end && self.connection != other.connection
    }
}

/// The order of all writes of a server.
#[derive(Debug, Default)]
pub(super) struct WriteOrder {
    writes: Mutex<Writes>,
    cores: OnceLock<Vec<MailboxSender<Message>>>,
}

#[derive(Debug, Default)]
struct Writes {
    last_ticket: u64,
    last_connection: u64,
    /// By size class: writes in the device or waiting, by start and ticket.
    entered: [BTreeMap<(u64, u64), WriteRange>; LENGTHS.len()],
    /// Waiting writes, by ticket.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    range: WriteRange,
    /// Number of earlier writes that it waits for.
    conflicts: usize,
    core: usize,
}

impl WriteOrder {
    /// Sets the senders to the cores, before the first client.
    pub(super) fn set_cores(&self, cores: Vec<MailboxSender<Message>>) {
        // Called once per server.
        let _ = self.cores.set(cores);
    }

    /// Returns the number of a new connection.
    pub(super) fn connection(&self) -> u64 {
        let mut writes = self.lock();
        writes.last_connection += 1;
        writes.last_connection
    }

    /// Registers a write that `core` executes. Returns its ticket, and true if it may begin;
    /// otherwise the core receives [`Message::Begin`] when it may.
    ///
    /// `peer` is given for a write that has waited to be read. Returns `None` if the client has
    /// closed the connection, because it may have repeated the write on another one.
    pub(super) fn enter(
        &self,
        range: WriteRange,
        core: usize,
        peer: Option<&Peer>,
    ) -> Option<(Ticket, bool)> {
        let mut writes = self.lock();
        // Under the lock, so that a repetition is ordered after a write that passes this check.
        if writes.last_connection > 1 && peer.is_some_and(Peer::has_closed) {
            return None;
        }
        Some(writes.enter(range, core))
    }

    /// Removes an ended write of `core`. Calls `begin` with the ticket of each write of that core
    /// that waited for it and may begin now.
    pub(super) fn leave(&self, ticket: Ticket, core: usize, mut begin: impl FnMut(u64)) {
        self.lock().leave(ticket, |number, other| {
            if other == core {
                begin(number);
            } else if let Some(sender) = self.cores.get().and_then(|cores| cores.get(other)) {
                // At most one message per waiting write.
                sender.send_always(Message::Begin(number));
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writes {
    /// Registers a write. Returns its ticket, and true if it may begin.
    fn enter(&mut self, range: WriteRange, core: usize) -> (Ticket, bool) {
        self.last_ticket += 1;
        let number = self.last_ticket;
        let of_length = |(writes, longest): (&BTreeMap<_, WriteRange>, u64)| {
            let first = range.start.saturating_sub(longest - 1);
            let near = writes.range((first, 0)..(range.end, 0));
            near.filter(|(_, other)| other.conflicts_with(&range))
                .count()
        };
        let conflicts: usize = self.entered.iter().zip(LENGTHS).map(of_length).sum();
        let fits = |&longest: &u64| range.end - range.start <= longest;
        let length = LENGTHS
            .iter()
            .position(fits)
            .expect("the last has no bound");
        self.entered[length].insert((range.start, number), range);
        if conflicts > 0 {
            let waiting = Waiting {
                range,
                conflicts,
                core,
            };
            self.waiting.insert(number, waiting);
        }
        let ticket = Ticket {
            start: range.start,
            number,
            length,
        };
        (ticket, conflicts == 0)
    }

    /// Removes a write. Calls `begin` with ticket and core of each write that may begin now.
    fn leave(&mut self, ticket: Ticket, mut begin: impl FnMut(u64, usize)) {
        let place = (ticket.start, ticket.number);
        let gone = self.entered[ticket.length].remove(&place);
        let gone = gone.expect("a write leaves once");
        // It may have ended before it began.
        self.waiting.remove(&ticket.number);
        self.waiting.retain(|&number, waiting| {
            if number < ticket.number || !waiting.range.conflicts_with(&gone) {
                return true;
            }
            waiting.conflicts -= 1;
            if waiting.conflicts == 0 {
                begin(number, waiting.core);
            }
            waiting.conflicts > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// The rule itself: a write waits for every earlier write that conflicts with it.
    #[derive(Default)]
    struct Model(Vec<(Ticket, WriteRange, bool)>);

    impl Model {
        fn may_begin(&self, index: usize) -> bool {
            let (_, range, _) = self.0[index];
            let mut earlier = self.0[..index].iter();
            !earlier.any(|(_, other, _)| range.conflicts_with(other))
        }

        /// Returns the writes that may begin and have not.
        fn begin(&mut self) -> Vec<u64> {
            let all = 0..self.0.len();
            let begun = all.filter(|&index| !self.0[index].2 && self.may_begin(index));
            let begun: Vec<_> = begun.collect();
            begun.iter().for_each(|&index| self.0[index].2 = true);
            begun.into_iter().map(|it| self.0[it].0.number).collect()
        }
    }

    #[test]
    fn writes_begin_as_the_rule_says() {
        let mut waited = 0;
        for seed in 0..300 {
            let mut random = Prng::from_seed(seed);
            let (mut writes, mut model) = (Writes::default(), Model::default());
            for _ in 0..200 {
                if random.chance(1, 2) {
                    // From each size class, including its bounds.
                    let length = [1, 4 << 10, (4 << 10) + 1, 64 << 10, 1 << 20, 5 << 20];
                    let length = length[usize::try_from(random.below(6)).expect("small")];
                    let start = random.below(64) << 16;
                    let range = WriteRange {
                        start,
                        end: start + length,
                        connection: random.below(3),
                    };
                    let (ticket, begins) = writes.enter(range, 7);
                    model.0.push((ticket, range, false));
                    assert_eq!(model.begin().len(), usize::from(begins), "seed {seed}");
                    waited += usize::from(!begins);
                } else if !model.0.is_empty() {
                    // Includes waiting writes, as when their core ends.
                    let index = random.below(model.0.len() as u64);
                    let (ticket, ..) = model.0.remove(usize::try_from(index).expect("small"));
                    let mut begun = Vec::new();
                    writes.leave(ticket, |number, core| {
                        assert_eq!(core, 7);
                        begun.push(number);
                    });
                    assert_eq!(begun, model.begin(), "seed {seed}");
                }
            }
            while let Some((ticket, ..)) = model.0.pop() {
                writes.leave(ticket, |_, _| {});
            }
            assert!(writes.waiting.is_empty() && writes.entered.iter().all(BTreeMap::is_empty));
        }
        assert!(waited > 1000, "{waited}");
    }
}
