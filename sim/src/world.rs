//! Time, and who lives in it.

use crate::driver::SimDriver;
use crate::network::{Network, NetworkFaults, NetworkTotals};
use base::{Nanos, Prng, Time};
use reactor::{Core, Service, Wait};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// What all simulated cores share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: Time,
    pub(crate) prng: Prng,
    pub(crate) network: Network,
    pub(crate) pace: Pace,
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

/// How fast cores are. Whatever a core does takes no time, unless this says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// A core that has something to do in this many is held up, as by another thread; 0 for never.
    pub stall_one_in: u64,
    /// How long at most.
    pub stall_max: Nanos,
    /// What sending takes, for each KiB. The core does nothing else meanwhile.
    pub send_per_kib: Nanos,
}

/// Somebody who lives in the world: a core with its service.
///
/// It sleeps as a core does: it takes turns until its deadline lies ahead, and from then on until
/// that comes or something wakes it, and never otherwise. So whoever brings work to a sleeping
/// core without waking it leaves the work lying.
pub trait Actor {
    /// Does what there is to do now.
    fn turn(&mut self);
    /// When there will be something to do without anything from outside. Asked before every sleep.
    fn deadline(&self) -> Time;
    /// Whether something woke it, or will find it awake.
    fn is_woken(&self) -> bool {
        false
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
        Core::turn(self, Wait::No).expect("a simulated driver does not break");
    }

    fn deadline(&self) -> Time {
        self.service.deadline()
    }

    fn is_woken(&self) -> bool {
        self.driver.is_woken()
    }

    fn busy_until(&self) -> Time {
        self.driver.busy_until()
    }

    fn hold(&mut self, until: Time) {
        self.driver.hold(until);
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

    /// From now on cores are this fast.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.borrow_mut().pace = pace;
    }

    /// From now on hosts and targets are held to the rules of their transport.
    ///
    /// # Panics
    /// Later, where one of them breaks a rule.
    pub fn watch(&self) {
        self.shared.borrow_mut().network.watch();
    }

    /// What the network did so far.
    #[must_use]
    pub fn network_totals(&self) -> NetworkTotals {
        self.shared.borrow().network.totals
    }

    /// From now on one send in `one_in` of the host with this driver is changed at random, and so
    /// is one of what it is sent.
    pub fn tell_lies(&self, driver: &SimDriver, one_in: u64) {
        let network = &mut self.shared.borrow_mut().network;
        network.tell_lies(driver.number(), one_in);
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
        // Everybody looks around first.
        let mut rests = vec![Time::ZERO; actors.len()];
        loop {
            if done() {
                return Outcome::Done;
            }
            let now = self.now();
            let mut acted = false;
            let first = self.random(actors.len());
            for i in 0..actors.len() {
                let index = (first + i) % actors.len();
                let (actor, rest) = (&mut actors[index], &mut rests[index]);
                let due = *rest <= now || actor.is_woken();
                if !due || actor.busy_until() > now {
                    continue;
                }
                if let Some(until) = self.stall(now) {
                    // What wakes it meanwhile finds it awake, and waits as well.
                    actor.hold(until);
                    continue;
                }
                actor.turn();
                *rest = actor.deadline();
                acted = true;
            }
            turns += 1;
            if turns == TURNS_WITHOUT_TIME_MAX {
                let due = |actor: &dyn Actor, rest: Time| rest <= now || actor.is_woken();
                let who: Vec<_> = (0..actors.len())
                    .filter(|&index| due(&*actors[index], rests[index]))
                    .map(|index| (index, rests[index], actors[index].is_woken()))
                    .collect();
                panic!("somebody acts without end at {now:?}: (number, deadline, woken) {who:?}");
            }
            if acted {
                continue;
            }
            // Whoever is due and did not act is busy.
            let wishes = actors.iter().zip(&rests).map(|(actor, rest)| {
                let rest = if actor.is_woken() { now } else { *rest };
                rest.max(actor.busy_until())
            });
            let Some(next) = self.next_event(now, wishes.min()) else {
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

    /// Nobody does anything until then.
    pub fn wait_until(&self, until: Time) {
        let mut shared = self.shared.borrow_mut();
        shared.now = shared.now.max(until);
    }

    fn random(&self, below: usize) -> usize {
        let number = self.shared.borrow_mut().prng.below(below as u64);
        usize::try_from(number).expect("below a usize")
    }

    /// Whether somebody who would act now is held up, and until when.
    fn stall(&self, now: Time) -> Option<Time> {
        let Shared { prng, pace, .. } = &mut *self.shared.borrow_mut();
        let stalls = pace.stall_one_in > 0 && prng.chance(1, pace.stall_one_in);
        stalls.then(|| now + Nanos(1 + prng.below(pace.stall_max.0)))
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
