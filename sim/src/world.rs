//! Time, and its actors.

use crate::driver::SimDriver;
use crate::network::{Lies, Network, NetworkFaults, NetworkTotals};
use crate::shared::{Memory, Pace, Shared};
use crate::stirred::CoreNumber;
use base::{Nanos, Prng, Time};
use reactor::{Core, Service, Wait};
use std::cell::RefCell;
use std::rc::Rc;

/// An actor of the world: a core with its service.
///
/// It sleeps as a core does: it takes turns until its deadline lies ahead, and from then on until
/// that comes or something wakes it, and never otherwise. So an actor that brings work to a
/// sleeping core without waking it leaves the work lying.
pub trait Actor {
    /// Does what there is to do now.
    fn turn(&mut self);
    /// Returns the time at which there will be something to do without anything from outside.
    fn deadline(&self) -> Time;
    /// Returns true if something woke it, or will find it awake.
    fn is_woken(&self) -> bool {
        false
    }
    /// The number by which the world says that something may have woken it. One without a number
    /// is asked at every step.
    fn number(&self) -> Option<u32> {
        None
    }
    /// Until when it is busy, and can take no turn.
    fn busy_until(&self) -> Time {
        Time::ZERO
    }
    /// It is held up until then.
    fn hold(&mut self, _until: Time) {}
}

impl<S: Service> Actor for Core<SimDriver, S> {
    fn turn(&mut self) {
        if let Some(deadline) = self.driver.take_postponed() {
            if self.driver.rest(deadline) {
                return;
            }
            self.service.stays_awake();
        }
        Core::turn(self, Wait::No).expect("a simulated driver does not break");
        let deadline = self.service.deadline();
        if self.driver.is_busy() {
            // It looks at its sockets when it is through with its sends.
            self.driver.postpone(deadline);
        } else if !self.driver.rest(deadline) {
            self.service.stays_awake();
        }
    }

    fn deadline(&self) -> Time {
        self.driver.wakes_at()
    }

    fn is_woken(&self) -> bool {
        self.driver.is_woken()
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
    /// The event that was waited for has happened.
    Done,
    /// No actor has anything to do, now or ever: a hang.
    Stuck,
    /// The time was up.
    OutOfTime,
}

/// Turns in a row, without time moving, after which an actor counts as spinning.
const TURNS_WITHOUT_TIME_MAX: u32 = 1_000_000;

/// A world with its own time and network; each clone is the same world.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) shared: Rc<RefCell<Shared>>,
}

impl World {
    /// A world in which everything that happens follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: NetworkFaults) -> Self {
        let shared = Shared {
            now: Time(1_000_000),
            prng: Prng::from_seed(seed),
            network: Network::new(faults),
            pace: Pace::default(),
            memory: Memory::default(),
            outgoing: Vec::new(),
            turns: 0,
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

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.borrow().now
    }

    /// From now on the network behaves like this.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.shared.borrow_mut().network.set_faults(faults);
    }

    /// From now on cores are this fast.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.borrow_mut().pace = pace;
    }

    /// Drivers that are made from now on have this memory.
    pub fn set_memory(&self, memory: Memory) {
        self.shared.borrow_mut().memory = memory;
    }

    /// A number that all that has happened so far decides: equal runs have equal ones.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let shared = self.shared.borrow();
        let drawn = shared.prng.clone().next_u64();
        let network = shared.network.totals;
        drawn ^ shared.turns.rotate_left(32) ^ shared.now.0 ^ network.bytes.rotate_left(16)
    }

    /// From now on hosts and targets are held to the rules of their transport.
    ///
    /// # Panics
    /// Later, where one of them breaks a rule.
    pub fn watch(&self) {
        self.shared.borrow_mut().network.watch();
    }

    /// Returns the totals of the network so far.
    #[must_use]
    pub fn network_totals(&self) -> NetworkTotals {
        self.shared.borrow().network.totals
    }

    /// From now on one send in `one_in` of the host with this driver, or of what it is sent, is
    /// changed at random.
    pub fn tell_lies(&self, driver: &SimDriver, lies: Lies, one_in: u64) {
        let network = &mut self.shared.borrow_mut().network;
        network.tell_lies(driver.host(), lies, one_in);
    }

    /// Lets all actors act, in an order that the seed chooses, and time pass, until `done` says so,
    /// which is asked after every round of turns.
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
        let mut agenda = Agenda::new(actors);
        self.shared.borrow_mut().network.stirred.change_all();
        let mut acted = true;
        loop {
            // Time alone ends nothing.
            if std::mem::take(&mut acted) && done() {
                return Outcome::Done;
            }
            let now = self.now();
            let event = self.events(now, &mut agenda.stirred);
            let next = agenda.update(actors, now);
            turns += 1;
            if turns == TURNS_WITHOUT_TIME_MAX {
                let who = agenda.due.iter().map(|&i| (i, actors[i].deadline()));
                let who: Vec<_> = who.collect();
                panic!("somebody acts without end at {now:?}: (number, deadline) {who:?}");
            }
            if !agenda.due.is_empty() {
                self.take_turns(actors, &mut agenda.due);
                acted = true;
                continue;
            }
            let next = event.map_or(next, |event| event.min(next));
            if next == Time::NEVER {
                return Outcome::Stuck;
            }
            if next > until {
                return Outcome::OutOfTime;
            }
            if next > now {
                turns = 0;
            }
            self.shared.borrow_mut().now = next.max(now);
        }
    }

    /// Lets those act that have something to do, in any order.
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
                // What wakes it meanwhile finds it awake, and waits as well.
                actor.hold(until);
                continue;
            }
            actor.turn();
            self.shared.borrow_mut().turns += 1;
        }
    }

    /// Lets no actor do anything until then.
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

    /// Returns the time until which an actor that would act now is held up; `None` if it is not.
    fn stall(&self, now: Time) -> Option<Time> {
        let Shared { prng, pace, .. } = &mut *self.shared.borrow_mut();
        let stalls = pace.stall_one_in > 0 && prng.chance(1, pace.stall_one_in);
        stalls.then(|| now + Nanos(1 + prng.below(pace.stall_max.0)))
    }

    /// Lists the cores on which something has happened by now. Returns the time of the next event.
    fn events(&self, now: Time, stirred: &mut Vec<CoreNumber>) -> Option<Time> {
        let network = &mut self.shared.borrow_mut().network;
        let next = network.next_event(now);
        network.stirred.take(stirred);
        next
    }
}

/// The time at which each actor acts, as long as nothing happens to it before.
struct Agenda {
    at: Vec<Time>,
    /// Actors by the numbers of their cores, and those without one.
    of_core: Vec<Option<usize>>,
    others: Vec<usize>,
    /// Cores on which something has happened.
    stirred: Vec<CoreNumber>,
    /// Actors that act now, or did.
    due: Vec<usize>,
    /// No actor has acted yet: all of them look around first.
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

    /// Looks at the actors that have acted, and at those that something has happened to. Lists
    /// those that are due; returns when the next one of the others is.
    fn update(&mut self, actors: &[&mut dyn Actor], now: Time) -> Time {
        let stirred = self.stirred.iter();
        let stirred = stirred.filter_map(|&core| *self.of_core.get(core as usize)?);
        for index in stirred
            .chain(self.due.drain(..))
            .chain(self.others.iter().copied())
        {
            self.at[index] = acts_at(&*actors[index]);
        }
        debug_assert!(
            self.first || self.agrees(actors, now),
            "a core was not told of what happened to it"
        );
        if std::mem::take(&mut self.first) {
            self.due.extend(0..actors.len());
            return Time::NEVER;
        }
        let mut next = Time::NEVER;
        for (index, &at) in self.at.iter().enumerate() {
            if at <= now {
                self.due.push(index);
            } else {
                next = next.min(at);
            }
        }
        next
    }

    /// Returns true if asking every actor says the same.
    fn agrees(&self, actors: &[&mut dyn Actor], now: Time) -> bool {
        let mut both = self.at.iter().zip(actors);
        both.all(|(&at, actor)| {
            let asked = acts_at(&**actor);
            asked == at || asked.max(at) <= now
        })
    }
}

/// The time at which an actor acts if nothing happens to it before.
fn acts_at(actor: &dyn Actor) -> Time {
    let busy = actor.busy_until();
    if actor.is_woken() {
        busy
    } else {
        actor.deadline().max(busy)
    }
}
