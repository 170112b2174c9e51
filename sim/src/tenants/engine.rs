//! The events of a run, in time order.

use super::processor::Core;
use super::report::{Report, TenantReport};
use super::request::Request;
use super::scenario::{Change, Known, Load, Pace, Setup};
use crate::calendar::Calendar;
use crate::model::Random;
use base::{Latencies, Nanos, Time};
use block::device::flash::{Access, Timing};
use qos::cost::DeviceLoad as Prices;
use qos::token_scheduler::{Refused, Totals};
use qos::{Refusal, TenantId, TenantKey, Tenants, TokenScheduler, Tokens, units};

/// Places for queued requests on a thread: more than any load has outstanding.
const PLACES: u32 = 1 << 16;

/// Pages of the device: a terabyte.
const PAGES: u64 = 1 << 28;

/// Why a run is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A tenant was not admitted.
    #[error("tenant {0} is not admitted: {1}")]
    Refused(usize, Refusal),
    /// More threads than a device supports.
    #[error(transparent)]
    Threads(#[from] qos::token_scheduler::TooManyThreads),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of a tenant's pace is due. Stale if the pace has changed since.
    Arrival { tenant: usize, pace: u32 },
    /// A round of a thread's scheduler is due.
    Round { thread: usize },
    /// A thread has work, and time for it.
    Turn { thread: usize },
    /// A thread hands a request to the device.
    Start(Request),
    /// The device has completed a request.
    Done(Request),
    /// The answer is sent.
    Answered(Request),
    /// A change of the setup.
    Change(usize),
}

/// The state of a tenant.
#[derive(Debug)]
struct Live {
    load: Load,
    /// Counts changes of the pace.
    pace: u32,
    /// Threads of its connections with its keys there; empty while it is not registered.
    keys: Vec<(usize, TenantKey)>,
    next: usize,
    /// Index of its first connection.
    first_connection: usize,
}

struct Thread {
    scheduler: TokenScheduler<Request>,
    /// Time of the scheduled round.
    round_at: Time,
    core: Core,
}

struct Engine<'a> {
    setup: &'a Setup,
    now: Time,
    calendar: Calendar<Time, Event>,
    random: Random,
    tenants: Tenants,
    live: Vec<Live>,
    threads: Vec<Thread>,
    device: Timing,
    reports: Vec<TenantReport>,
    reads: Latencies,
    rounds: u64,
    released: Vec<(Request, Tokens)>,
}

/// Runs a setup.
///
/// # Errors
/// If a tenant is refused, or there are too many threads.
pub fn run(setup: &Setup) -> Result<Report, RunError> {
    let mut engine = Engine::new(setup)?;
    let end = Time::ZERO + setup.warm_up + setup.measured;
    while let Some((at, event)) = engine.calendar.pop() {
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
                    scheduler: TokenScheduler::new(tenants.pool().clone(), PLACES)?,
                    round_at: Time::NEVER,
                    core: Core::default(),
                })
            })
            .collect::<Result<_, RunError>>()?;
        let mut engine = Self {
            setup,
            now: Time::ZERO,
            calendar: Calendar::new(),
            random: Random::new(setup.seed),
            tenants,
            live: Vec::new(),
            threads,
            device: Timing::new(setup.device.parts),
            // A newly created histogram takes memory as it fills, a cloned one immediately.
            reports: (0..setup.tenants.len())
                .map(|_| TenantReport::new(setup.measured))
                .collect(),
            reads: Latencies::new(),
            rounds: 0,
            released: Vec::new(),
        };
        let mut connections = 0;
        for (number, tenant) in setup.tenants.iter().enumerate() {
            engine.live.push(Live {
                load: tenant.load,
                pace: 0,
                keys: Vec::new(),
                next: 0,
                first_connection: connections,
            });
            connections += tenant.threads.len();
            engine.declare(number, tenant.declaration)?;
            engine.begin(number);
        }
        for (index, (at, _)) in setup.changes.iter().enumerate() {
            engine.at(Time::ZERO + *at, Event::Change(index));
        }
        Ok(engine)
    }

    fn at(&mut self, time: Time, event: Event) {
        self.calendar.push(time, event);
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
                    self.look(thread);
                }
            }
            Event::Turn { thread } => self.turn(thread),
            Event::Start(request) => self.start(request),
            Event::Done(request) => self.done(request),
            Event::Answered(request) => self.answered(request),
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

    /// Registers a tenant, or changes its declaration.
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

    /// Issues the first requests of a pace.
    fn begin(&mut self, tenant: usize) {
        match self.live[tenant].load.pace {
            Pace::Depth(depth) => {
                for _ in 0..depth {
                    self.ask(tenant);
                }
            }
            // Tenants start at different times.
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

    /// Issues a request of a tenant.
    fn ask(&mut self, tenant: usize) {
        let live = &mut self.live[tenant];
        if live.keys.is_empty() {
            self.reports[tenant].refused += 1;
            return;
        }
        live.next = (live.next + 1) % live.keys.len();
        let (thread, _) = live.keys[live.next];
        let request = Request {
            tenant,
            pace: live.pace,
            arrived: self.now,
            read: self.random.permille(live.load.read_permille),
            pages: units(u64::from(live.load.bytes)),
            bytes: live.load.bytes,
            thread,
            connection: live.first_connection + live.next,
        };
        if self.setup.processor.is_some() {
            self.threads[thread].core.arrived.push_back(request);
        } else {
            self.take(request);
        }
        self.look(thread);
    }

    /// A thread receives a request.
    fn take(&mut self, request: Request) {
        if !self.setup.scheduled {
            let prices = self.setup.device.costs.prices(Prices::Mixed);
            let cost = prices.cost(request.operation(), request.pages);
            self.released.push((request, cost));
            return;
        }
        let live = &self.live[request.tenant];
        let key = live.keys.get(request.connection - live.first_connection);
        let Some(&(thread, key)) = key else {
            self.reports[request.tenant].refused += 1;
            return;
        };
        let scheduler = &mut self.threads[thread].scheduler;
        let taken = scheduler.enqueue(key, request.operation(), request.pages, request);
        if let Err(Refused::Full(_) | Refused::Closed(_)) = taken {
            self.reports[request.tenant].refused += 1;
        }
    }

    /// A thread checks for work: immediately, or when it has time.
    fn look(&mut self, thread: usize) {
        if self.setup.processor.is_none() {
            return self.round(thread, Self::start);
        }
        let core = &mut self.threads[thread].core;
        if !core.waits {
            core.waits = true;
            let at = core.busy_until.max(self.now);
            self.at(at, Event::Turn { thread });
        }
    }

    /// Runs a turn of a thread that takes time: it takes new requests and runs a round of the
    /// scheduler; at its end requests start and answers leave.
    fn turn(&mut self, thread: usize) {
        let processor = self.setup.processor.expect("only then are turns planned");
        let is_measured = self.is_measured();
        let core = &mut self.threads[thread].core;
        core.waits = false;
        let found = core.gather();
        let took = core.cost(&processor, &found);
        let end = self.now + took;
        core.busy_until = end;
        if is_measured {
            core.busy += took;
        }
        let [taken, answers] = found;
        for request in taken {
            self.take(request);
        }
        self.round(thread, |engine, request| {
            engine.at(end, Event::Start(request))
        });
        for request in answers {
            self.at(end, Event::Answered(request));
        }
        if self.threads[thread].core.has_work() {
            self.look(thread);
        }
    }

    /// Runs a round of a thread's scheduler. Admitted requests are charged, and `leave` sends them.
    fn round(&mut self, thread: usize, mut leave: impl FnMut(&mut Self, Request)) {
        if self.setup.scheduled {
            self.schedule(thread);
        }
        let mut released = std::mem::take(&mut self.released);
        for (request, cost) in released.drain(..) {
            self.charge(&request, cost);
            leave(self, request);
        }
        self.released = released;
    }

    fn schedule(&mut self, thread: usize) {
        let (released, now) = (&mut self.released, self.now);
        let scheduler = &mut self.threads[thread].scheduler;
        scheduler.round(now, &mut |request, cost| released.push((request, cost)));
        self.rounds += 1;
        let due = scheduler.deadline();
        if due < self.threads[thread].round_at {
            self.threads[thread].round_at = due;
            self.at(due.max(now), Event::Round { thread });
        }
    }

    fn charge(&mut self, request: &Request, cost: Tokens) {
        if self.is_measured() {
            let milli = u64::try_from(cost.0 / Tokens::milli(1).0).expect("costs are positive");
            self.reports[request.tenant].milli_tokens += milli;
        }
    }

    /// Hands a request to the device.
    fn start(&mut self, request: Request) {
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

    /// The device has completed a request.
    fn done(&mut self, request: Request) {
        if self.setup.processor.is_none() {
            self.answered(request);
        } else {
            self.threads[request.thread].core.done.push_back(request);
            self.look(request.thread);
        }
    }

    /// A tenant receives its answer.
    fn answered(&mut self, request: Request) {
        if self.is_measured() {
            let report = &mut self.reports[request.tenant];
            report.requests += 1;
            if request.read {
                let took = self.now.since(request.arrived);
                report.read(took);
                self.reads.record(took);
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
            reads: self.reads,
            busy: self.threads.iter().map(|thread| thread.core.busy).collect(),
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
