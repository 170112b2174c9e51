//! Time, and who lives in it.

use crate::driver::SimDriver;
use crate::network::{Network, NetworkFaults};
use base::{Prng, Time};
use reactor::{Core, Driver, Service, Wait};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// What all simulated cores share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: Time,
    pub(crate) prng: Prng,
    pub(crate) network: Network,
    /// Times at which some driver has something to do.
    scheduled: BTreeSet<Time>,
    drivers: u64,
}

impl Shared {
    /// A number for one more driver.
    pub(crate) fn next_driver(&mut self) -> u64 {
        self.drivers += 1;
        self.drivers
    }

    pub(crate) fn schedule(&mut self, at: Time) {
        self.scheduled.insert(at);
    }
}

/// Somebody who lives in the world: a core with its service.
pub trait Actor {
    /// Does what there is to do now. Returns whether there was anything.
    fn turn(&mut self) -> bool;
    /// When there will be something to do without anything from outside.
    fn deadline(&self) -> Time;
}

impl<D: Driver, S: Service> Actor for Core<D, S> {
    fn turn(&mut self) -> bool {
        Core::turn(self, Wait::No).expect("a simulated driver does not break")
    }

    fn deadline(&self) -> Time {
        self.service.deadline()
    }
}

/// How [`World::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What was waited for has happened.
    Done,
    /// Nobody has anything to do, now or ever: a hang.
    Stuck,
    /// The time was up.
    OutOfTime,
}

/// Turns in a row, without time moving, after which somebody is said to spin.
const TURNS_WITHOUT_TIME_MAX: u32 = 1_000_000;

/// A world with its own time and network.
#[derive(Debug)]
pub struct World {
    shared: Rc<RefCell<Shared>>,
}

impl World {
    /// A world in which everything that happens follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: NetworkFaults) -> Self {
        let shared = Shared {
            now: Time(1_000_000),
            prng: Prng::from_seed(seed),
            network: Network::new(faults),
            scheduled: BTreeSet::new(),
            drivers: 0,
        };
        Self {
            shared: Rc::new(RefCell::new(shared)),
        }
    }

    /// A driver for one more core.
    #[must_use]
    pub fn driver(&self) -> SimDriver {
        SimDriver::new(Rc::clone(&self.shared))
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.borrow().now
    }

    /// From now on the network behaves like this.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.shared.borrow_mut().network.set_faults(faults);
    }

    /// (bytes that the network carried, connections that it cut).
    #[must_use]
    pub fn network_totals(&self) -> (u64, u64) {
        let shared = self.shared.borrow();
        (shared.network.bytes, shared.network.cuts)
    }

    /// Lets everybody act, in an order that the seed chooses, and time pass, until `done` says so.
    ///
    /// # Panics
    /// If the actors keep acting without time ever moving: that is a loop without an end.
    pub fn run(
        &self,
        actors: &mut [&mut dyn Actor],
        until: Time,
        mut done: impl FnMut() -> bool,
    ) -> Outcome {
        let mut turns = 0;
        loop {
            if done() {
                return Outcome::Done;
            }
            let count = actors.len() as u64;
            let first = self.shared.borrow_mut().prng.below(count);
            let mut busy = false;
            for i in 0..count {
                let index = usize::try_from((first + i) % count).expect("an index");
                busy |= actors[index].turn();
            }
            turns += 1;
            assert!(
                turns < TURNS_WITHOUT_TIME_MAX,
                "somebody acts without end at {:?}",
                self.now()
            );
            // What was done without any operation may be what was waited for.
            if busy || done() {
                continue;
            }
            let now = self.now();
            let deadline = actors.iter().map(|actor| actor.deadline()).min();
            let Some(next) = self.next_event(now, deadline) else {
                return Outcome::Stuck;
            };
            if next > until {
                return Outcome::OutOfTime;
            }
            if next > now {
                turns = 0;
            }
            self.shared.borrow_mut().now = next.max(now);
        }
    }

    /// When something will happen next. A deadline that has passed is due at once.
    fn next_event(&self, now: Time, deadline: Option<Time>) -> Option<Time> {
        let mut shared = self.shared.borrow_mut();
        while shared.scheduled.first().is_some_and(|&at| at <= now) {
            shared.scheduled.pop_first();
        }
        let scheduled = shared.scheduled.first().copied();
        let deadline = deadline.filter(|&at| at != Time::NEVER);
        [scheduled, shared.network.next_event(now), deadline]
            .into_iter()
            .flatten()
            .min()
    }
}
