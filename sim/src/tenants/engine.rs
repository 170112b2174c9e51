//! The events of a run, in the order of time.

use super::report::{Report, TenantReport};
use super::scenario::{Change, Known, Load, Pace, Setup};
use crate::model::Random;
use base::{Nanos, Time};
use block::device::flash::{Access, Timing};
use qos::cost::Load as Prices;
use qos::scheduler::{Refused, Totals};
use qos::{Operation, Refusal, Scheduler, TenantId, TenantKey, Tenants, Tokens, units};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Places for requests that wait on a thread: more than any load has in flight.
const PLACES: u32 = 1 << 16;

/// Pages of the device: a terabyte.
const PAGES: u64 = 1 << 28;

/// Why there is no run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A tenant was not admitted.
    #[error("tenant {0} is not admitted: {1}")]
    Refused(usize, Refusal),
    /// More threads than a device can have.
    #[error(transparent)]
    Threads(#[from] qos::scheduler::TooManyThreads),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A tenant's pace asks for a request. Stale when the pace has changed since.
    Arrival { tenant: usize, pace: u32 },
    /// A thread's scheduler asked for a round.
    Round { thread: usize },
    /// The device is done.
    Done(Request),
    /// Something changes.
    Change(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    tenant: usize,
    pace: u32,
    arrived: Time,
    read: bool,
    pages: u32,
}

impl Request {
    const fn operation(&self) -> Operation {
        if self.read {
            Operation::Read
        } else {
            Operation::Write
        }
    }
}

/// A tenant while it runs.
#[derive(Debug)]
struct Live {
    load: Load,
    /// Counts changes of the pace.
    pace: u32,
    /// Where its connections are, and what it is called there; none while it is not registered.
    keys: Vec<(usize, TenantKey)>,
    next: usize,
}

struct Thread {
    scheduler: Scheduler<Request>,
    /// The round that is in the calendar.
    round_at: Time,
}

struct Engine<'a> {
    setup: &'a Setup,
    now: Time,
    calendar: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events: u64,
    random: Random,
    tenants: Tenants,
    live: Vec<Live>,
    threads: Vec<Thread>,
    device: Timing,
    reports: Vec<TenantReport>,
    rounds: u64,
    released: Vec<(Request, Tokens)>,
}

/// Runs a setup.
///
/// # Errors
/// When a tenant is refused, or there are too many threads.
pub fn run(setup: &Setup) -> Result<Report, RunError> {
    let mut engine = Engine::new(setup)?;
    let end = Time::ZERO + setup.warm_up + setup.measured;
    while let Some(Reverse((at, _, event))) = engine.calendar.pop() {
        if at > end {
            break;
        }
        engine.now = at;
        engine.happen(event)?;
    }
    Ok(engine.report())
}

impl<'a> Engine<'a> {
    fn new(setup: &'a Setup) -> Result<Self, RunError> {
        let (costs, curve) = (setup.device.costs, setup.device.curve.clone());
        let tenants = Tenants::new(setup.rules, costs, curve);
        let threads = (0..setup.threads)
            .map(|_| {
                Ok(Thread {
                    scheduler: Scheduler::new(tenants.pool().clone(), PLACES)?,
                    round_at: Time::NEVER,
                })
            })
            .collect::<Result<_, RunError>>()?;
        let mut engine = Self {
            setup,
            now: Time::ZERO,
            calendar: BinaryHeap::new(),
            events: 0,
            random: Random::new(setup.seed),
            tenants,
            live: Vec::new(),
            threads,
            device: Timing::new(setup.device.parts),
            reports: vec![TenantReport::new(setup.measured); setup.tenants.len()],
            rounds: 0,
            released: Vec::new(),
        };
        for (number, tenant) in setup.tenants.iter().enumerate() {
            engine.live.push(Live {
                load: tenant.load,
                pace: 0,
                keys: Vec::new(),
                next: 0,
            });
            engine.declare(number, tenant.declaration)?;
            engine.begin(number);
        }
        for (index, (at, _)) in setup.changes.iter().enumerate() {
            engine.at(Time::ZERO + *at, Event::Change(index));
        }
        Ok(engine)
    }

    fn at(&mut self, time: Time, event: Event) {
        self.events += 1;
        self.calendar.push(Reverse((time, self.events, event)));
    }

    fn happen(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Arrival { tenant, pace } => {
                if self.live[tenant].pace == pace {
                    self.ask(tenant);
                    self.next_arrival(tenant);
                }
            }
            Event::Round { thread } => {
                if self.threads[thread].round_at <= self.now {
                    self.threads[thread].round_at = Time::NEVER;
                    self.turn(thread);
                }
            }
            Event::Done(request) => self.done(request),
            Event::Change(index) => match self.setup.changes[index].1.clone() {
                Change::Declare(tenant, declaration) => {
                    let back = self.live[tenant].keys.is_empty();
                    self.declare(tenant, declaration)?;
                    if back {
                        self.live[tenant].pace += 1;
                        self.begin(tenant);
                    }
                }
                Change::Remove(tenant) => self.remove(tenant),
                Change::Pace(tenant, pace) => {
                    self.live[tenant].load.pace = pace;
                    self.live[tenant].pace += 1;
                    self.begin(tenant);
                }
                Change::SlowDown(percent) => self.device.slow_down(percent),
                Change::Storm(span) => self.device.storm(self.now, span),
                Change::Recalibrate(Known { costs, curve }) => {
                    self.tenants.recalibrate(costs, curve);
                }
            },
        }
        Ok(())
    }

    /// Registers a tenant, or changes one.
    fn declare(&mut self, number: usize, declaration: qos::Declaration) -> Result<(), RunError> {
        let id = id(number);
        let refused = |refusal| RunError::Refused(number, refusal);
        self.tenants.set(id, declaration).map_err(refused)?;
        if self.live[number].keys.is_empty() {
            let account = self.tenants.account(id).expect("registered").clone();
            for &thread in &self.setup.tenants[number].threads {
                let thread = thread as usize;
                let key = self.threads[thread].scheduler.attach(&account);
                self.live[number].keys.push((thread, key));
            }
        }
        Ok(())
    }

    fn remove(&mut self, number: usize) {
        self.tenants.remove(id(number));
        let refused = &mut self.reports[number].refused;
        for (thread, key) in std::mem::take(&mut self.live[number].keys) {
            let scheduler = &mut self.threads[thread].scheduler;
            scheduler.detach(key, &mut |_| *refused += 1);
        }
    }

    /// The first requests of a pace.
    fn begin(&mut self, tenant: usize) {
        match self.live[tenant].load.pace {
            Pace::Depth(depth) => {
                for _ in 0..depth {
                    self.ask(tenant);
                }
            }
            // Tenants do not begin in step.
            Pace::Even(rate) | Pace::Random(rate) => {
                let first = self.random.below(1_000_000_000 / rate.max(1) + 1);
                let pace = self.live[tenant].pace;
                self.at(self.now + Nanos(first), Event::Arrival { tenant, pace });
            }
        }
    }

    fn next_arrival(&mut self, tenant: usize) {
        let pace = self.live[tenant].pace;
        let gap = match self.live[tenant].load.pace {
            Pace::Even(rate) => 1_000_000_000 / rate.max(1),
            Pace::Random(rate) => self.random.exponential(1_000_000_000 / rate.max(1)),
            Pace::Depth(_) => return,
        };
        self.at(self.now + Nanos(gap), Event::Arrival { tenant, pace });
    }

    /// A request of a tenant.
    fn ask(&mut self, tenant: usize) {
        let live = &mut self.live[tenant];
        let request = Request {
            tenant,
            pace: live.pace,
            arrived: self.now,
            read: self.random.permille(live.load.read_permille),
            pages: units(u64::from(live.load.bytes)),
        };
        if !self.setup.scheduled {
            let prices = self.setup.device.costs.prices(Prices::Mixed);
            let cost = prices.cost(request.operation(), request.pages);
            self.start(request, cost);
            return;
        }
        if live.keys.is_empty() {
            self.reports[tenant].refused += 1;
            return;
        }
        live.next = (live.next + 1) % live.keys.len();
        let (thread, key) = live.keys[live.next];
        let scheduler = &mut self.threads[thread].scheduler;
        match scheduler.enqueue(key, request.operation(), request.pages, request) {
            Ok(()) => self.turn(thread),
            Err(Refused::Full(_) | Refused::Closed(_)) => self.reports[tenant].refused += 1,
        }
    }

    /// A turn of a thread.
    fn turn(&mut self, thread: usize) {
        let mut released = std::mem::take(&mut self.released);
        let scheduler = &mut self.threads[thread].scheduler;
        scheduler.round(self.now, &mut |request, cost| {
            released.push((request, cost));
        });
        self.rounds += 1;
        let due = scheduler.deadline();
        if due < self.threads[thread].round_at {
            self.threads[thread].round_at = due;
            self.at(due.max(self.now), Event::Round { thread });
        }
        for (request, cost) in released.drain(..) {
            self.start(request, cost);
        }
        self.released = released;
    }

    /// Hands a request to the device.
    fn start(&mut self, request: Request, cost: Tokens) {
        if self.is_measured() {
            let milli = u64::try_from(cost.0 / Tokens::milli(1).0).expect("costs are positive");
            self.reports[request.tenant].milli_tokens += milli;
        }
        let pages = u64::from(request.pages);
        let access = if request.read {
            let page = self.random.below(PAGES);
            Access::Read { page, pages }
        } else {
            Access::Write { pages }
        };
        let end = self.device.finish(self.now, access);
        self.at(end, Event::Done(request));
    }

    fn done(&mut self, request: Request) {
        if self.is_measured() {
            let report = &mut self.reports[request.tenant];
            report.requests += 1;
            if request.read {
                report.read(self.now.since(request.arrived));
            }
        }
        let live = &self.live[request.tenant];
        if matches!(live.load.pace, Pace::Depth(_)) && live.pace == request.pace {
            self.ask(request.tenant);
        }
    }

    fn is_measured(&self) -> bool {
        self.now >= Time::ZERO + self.setup.warm_up
    }

    fn report(self) -> Report {
        let mut tokens = Totals::default();
        for thread in &self.threads {
            let totals = thread.scheduler.totals();
            tokens.generated += totals.generated;
            tokens.spent += totals.spent;
            tokens.expired += totals.expired;
            tokens.forgiven += totals.forgiven;
        }
        Report {
            tokens,
            rate: self.tenants.admission().plan().rate.0,
            unkept: self.unkept(),
            tenants: self.reports,
            rounds: self.rounds,
        }
    }

    fn unkept(&self) -> Vec<usize> {
        let unkept = self.tenants.admission().unkept().into_iter();
        unkept
            .map(|(TenantId(number), _)| number as usize)
            .collect()
    }
}

fn id(number: usize) -> TenantId {
    TenantId(u32::try_from(number).expect("fewer tenants than a number holds"))
}
