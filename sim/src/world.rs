//! Virtual time and the actors that run in it.

use crate::driver::SimDriver;
use crate::network::{Lies, Network, NetworkFaults, NetworkTotals};
use crate::shared::{Memory, Pace, Shared, SpareBuffers};
use crate::stirred::CoreNumber;
use base::{Nanos, Prng, Time};
use reactor::tls::TlsMemory;
use reactor::{Core, Driver as _, Service, Wait};
use std::cell::RefCell;
use std::rc::Rc;

/// An actor of the world: a core with its service.
///
/// It sleeps like a core: it takes turns until its deadline is in the future, then sleeps until the
/// deadline or a wake-up. So an actor that passes work to a sleeping core without waking it leaves
/// the work undone.
pub trait Actor {
    /// Does the work that is due now.
    fn turn(&mut self);
    /// Returns the time of its next turn without further events: immediately if it was woken, or is
    /// awake.
    fn acts_at(&self) -> Time;
    /// Returns the number by which the world marks it as possibly woken. An actor without a number
    /// is queried at every step.
    fn number(&self) -> Option<u32> {
        None
    }
    /// Returns the time until which it is busy and takes no turn.
    fn busy_until(&self) -> Time {
        Time::ZERO
    }
    /// Stalls it until `_until`.
    fn hold(&mut self, _until: Time) {}
}

impl<S: Service> Actor for Core<SimDriver, S> {
    fn turn(&mut self) {
        if let Some(deadline) = self.driver.take_postponed()
            && self.driver.rest(deadline)
        {
            return;
        }
        Core::turn(self, Wait::No).expect("a simulated driver does not break");
        let mut deadline = self.service.deadline();
        if deadline > self.driver.now() && !self.service.may_sleep() {
            deadline = Time::ZERO;
        }
        if self.driver.is_busy() {
            // It checks its sockets after its sends.
            self.driver.postpone(deadline);
        } else {
            self.driver.rest(deadline);
        }
    }

    fn acts_at(&self) -> Time {
        let busy = self.driver.busy_until();
        if self.driver.is_woken() {
            busy
        } else {
            self.driver.wakes_at().max(busy)
        }
    }

    fn number(&self) -> Option<u32> {
        Some(self.driver.number())
    }

    fn busy_until(&self) -> Time {
        self.driver.busy_until()
    }

    fn hold(&mut self, until: Time) {
        self.driver.hold(until);
    }
}

/// The end of [`World::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `done` returned true.
    Done,
    /// No actor has work, now or later: a hang.
    Stuck,
    /// The time limit was reached.
    OutOfTime,
}

/// Consecutive turns without progress of time after which an actor counts as spinning.
const TURNS_WITHOUT_TIME_MAX: u32 = 1_000_000;

/// A world with its own time and network; each clone is the same world.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) shared: Rc<RefCell<Shared>>,
}

impl World {
    /// Creates a world in which every event follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: NetworkFaults) -> Self {
        let shared = Shared {
            now: Time(1_000_000),
            prng: Prng::from_seed(seed),
            network: Network::new(faults),
            pace: Pace::default(),
            memory: Memory::default(),
            spare_buffers: SpareBuffers::default(),
            outgoing: Vec::new(),
            tls: TlsMemory::default(),
            turns: 0,
        };
        Self {
            shared: Rc::new(RefCell::new(shared)),
        }
    }

    /// Creates a driver for a new core.
    #[must_use]
    pub fn driver(&self) -> SimDriver {
        SimDriver::new(Rc::clone(&self.shared))
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.borrow().now
    }

    /// Sets the faults of the network.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.shared.borrow_mut().network.set_faults(faults);
    }

    /// Sets the pace of the cores.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.borrow_mut().pace = pace;
    }

    /// Sets the memory of drivers created from now on.
    pub fn set_memory(&self, memory: Memory) {
        self.shared.borrow_mut().memory = memory;
    }

    /// Returns a hash of all events so far: equal in equal runs.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let shared = self.shared.borrow();
        let drawn = shared.prng.clone().next_u64();
        let network = shared.network.totals;
        drawn ^ shared.turns.rotate_left(32) ^ shared.now.0 ^ network.bytes.rotate_left(16)
    }

    /// Checks from now on that hosts and targets follow their transport's rules.
    ///
    /// # Panics
    /// Later, when one of them breaks a rule.
    pub fn watch(&self) {
        self.shared.borrow_mut().network.watch();
    }

    /// Returns the totals of the network so far.
    #[must_use]
    pub fn network_totals(&self) -> NetworkTotals {
        self.shared.borrow().network.totals
    }

    /// Changes one in `one_in` sends to and from this driver's host at random from now on.
    pub fn tell_lies(&self, driver: &SimDriver, lies: Lies, one_in: u64) {
        let network = &mut self.shared.borrow_mut().network;
        network.tell_lies(driver.host(), lies, one_in);
    }

    /// Runs all actors in an order drawn from the seed, and advances time, until `done`, called
    /// after every round of turns, returns true.
    ///
    /// # Panics
    /// If the actors keep acting without time advancing: an endless loop.
    pub fn run(
        &self,
        actors: &mut [&mut dyn Actor],
        until: Time,
        mut done: impl FnMut() -> bool,
    ) -> Outcome {
        let mut turns = 0;
        let mut agenda = Agenda::new(actors);
        self.shared.borrow_mut().network.stirred.change_all();
        let mut acted = true;
        loop {
            // Time alone completes nothing.
            if std::mem::take(&mut acted) && done() {
                return Outcome::Done;
            }
            let (now, event) = self.events(&mut agenda.stirred);
            let next = agenda.update(actors, now);
            turns += 1;
            if turns == TURNS_WITHOUT_TIME_MAX {
                let who = agenda.due.iter().map(|&i| (i, actors[i].acts_at()));
                let who: Vec<_> = who.collect();
                panic!("somebody acts without end at {now:?}: (number, time) {who:?}");
            }
            if agenda.due.is_empty() {
                let event = event.unwrap_or(Time::NEVER);
                let next = next.min(event);
                if next == Time::NEVER {
                    return Outcome::Stuck;
                }
                if next > until {
                    return Outcome::OutOfTime;
                }
                turns = 0;
                self.shared.borrow_mut().now = next;
                if event == next {
                    continue;
                }
                // Until then only deadlines of actors are due.
                agenda.list_due(next);
            }
            self.take_turns(actors, &mut agenda.due);
            acted = true;
        }
    }

    /// Lets the actors with work take turns, in random order.
    fn take_turns(&self, actors: &mut [&mut dyn Actor], due: &mut [usize]) {
        let now = self.now();
        for place in 0..due.len() {
            let other = place + self.random(due.len() - place);
            due.swap(place, other);
            let actor = &mut actors[due[place]];
            if actor.busy_until() > now {
                continue;
            }
            if let Some(until) = self.stall(now) {
                // A wake-up during the stall finds it awake, and waits, too.
                actor.hold(until);
                continue;
            }
            actor.turn();
            self.shared.borrow_mut().turns += 1;
        }
    }

    /// Advances time to `until` without any turn.
    pub fn wait_until(&self, until: Time) {
        let mut shared = self.shared.borrow_mut();
        shared.now = shared.now.max(until);
    }

    fn random(&self, below: usize) -> usize {
        if below < 2 {
            return 0;
        }
        let number = self.shared.borrow_mut().prng.below(below as u64);
        usize::try_from(number).expect("below a usize")
    }

    /// Returns the time until which an actor that is due now is stalled; `None` if it is not.
    fn stall(&self, now: Time) -> Option<Time> {
        let Shared { prng, pace, .. } = &mut *self.shared.borrow_mut();
        let stalls = pace.stall_one_in > 0 && prng.chance(1, pace.stall_one_in);
        stalls.then(|| now + Nanos(1 + prng.below(pace.stall_max.0)))
    }

    /// Lists the cores with events due by now. Returns the current time, and the time of the next
    /// event.
    fn events(&self, stirred: &mut Vec<CoreNumber>) -> (Time, Option<Time>) {
        let Shared { network, now, .. } = &mut *self.shared.borrow_mut();
        let next = network.next_event(*now);
        network.stirred.take(stirred);
        (*now, next)
    }
}

/// The time of each actor's next turn without further events.
struct Agenda {
    at: Vec<Time>,
    /// Actors by core number, then actors without a number.
    of_core: Vec<Option<usize>>,
    others: Vec<usize>,
    /// Cores that an event has affected.
    stirred: Vec<CoreNumber>,
    /// Actors that take a turn now, or did.
    due: Vec<usize>,
    /// No actor has acted yet: all of them are queried first.
    first: bool,
}

impl Agenda {
    fn new(actors: &[&mut dyn Actor]) -> Self {
        let mut agenda = Self {
            at: vec![Time::ZERO; actors.len()],
            of_core: Vec::new(),
            others: Vec::new(),
            stirred: Vec::new(),
            due: Vec::new(),
            first: true,
        };
        for (index, actor) in actors.iter().enumerate() {
            let Some(number) = actor.number() else {
                agenda.others.push(index);
                continue;
            };
            let number = number as usize;
            if agenda.of_core.len() <= number {
                agenda.of_core.resize(number + 1, None);
            }
            agenda.of_core[number] = Some(index);
        }
        agenda
    }

    /// Queries the actors that have acted, and those that an event has affected. Lists those that
    /// are due; returns the time of the next turn.
    fn update(&mut self, actors: &[&mut dyn Actor], now: Time) -> Time {
        for &core in &self.stirred {
            if let Some(&Some(index)) = self.of_core.get(core as usize) {
                self.at[index] = actors[index].acts_at();
            }
        }
        for &index in self.due.iter().chain(&self.others) {
            self.at[index] = actors[index].acts_at();
        }
        self.due.clear();
        debug_assert!(
            self.first || self.agrees(actors, now),
            "a core was not told of what happened to it"
        );
        if std::mem::take(&mut self.first) {
            self.due.extend(0..actors.len());
            return Time::NEVER;
        }
        let mut next = Time::NEVER;
        for &at in &self.at {
            next = next.min(at);
        }
        if next <= now {
            self.list_due(now);
        }
        next
    }

    /// Lists the actors that are due at `now`.
    fn list_due(&mut self, now: Time) {
        for (index, &at) in self.at.iter().enumerate() {
            if at <= now {
                self.due.push(index);
            }
        }
    }

    /// Returns true if querying every actor gives the same times.
    fn agrees(&self, actors: &[&mut dyn Actor], now: Time) -> bool {
        let mut both = self.at.iter().zip(actors);
        both.all(|(&at, actor)| {
            let asked = actor.acts_at();
            asked == at || asked.max(at) <= now
        })
    }
}
