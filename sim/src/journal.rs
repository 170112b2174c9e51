//! Hosts of one tenant that keep a journal: entries, a barrier, and then the mark that says that
//! they are there. A reader that finds a mark must find the entries, whatever the network does.
//!
//! The oracle is slow and obvious: a reader reads the mark, and then every entry; none of them may
//! be older than the mark was. Writers never wait for an answer: only barriers keep the order.

use crate::driver::SimDriver;
use crate::network::NetworkFaults;
use crate::storage::{add_namespace, connects, serve};
use crate::world::{Actor, Outcome, World};
use base::units::Lba;
use base::{Nanos, Prng, Time};
use block::{Channel, Completion, Device, Geometry, Operation, Request, Submit};
use host::{Association, ConnectOptions, Controller, Phase, RemoteChannel, RemoteNamespace};
use reactor::{Context, Core, IoSlice, PollPolicy, Service};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use target::{Limits, Others, SubsystemOptions, Target, Tenancy, TenantOptions};

const NQN: &str = "nqn.2026-11.io.switchyard:journal";

/// Longest that a simulation may take in its own time.
const TIME_MAX: Nanos = Nanos::from_secs(3_600);

/// Time for which a host lets what it has submitted leave by itself.
const PAUSE: Nanos = Nanos::from_micros(20);

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Cores of the target.
    pub target_cores: usize,
    /// Hosts of the tenant that write, each a journal of its own.
    pub writers: u64,
    /// Hosts of the tenant that read all journals.
    pub readers: u64,
    /// I/O queues of each host.
    pub queues: u16,
    /// Entries of a journal.
    pub entries: u64,
    /// True if there is a barrier before each mark.
    pub barriers: bool,
    /// Number of times that each journal is written.
    pub rounds: u64,
    /// Faults of the network while the work is done.
    pub faults: NetworkFaults,
}

/// The end of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Marks that readers found and checked.
    pub checked: u64,
    /// Of these, other than the one before.
    pub moved: u64,
    /// Connections that the network cut.
    pub cuts: u64,
}

/// The next step of a host.
#[derive(Clone, Copy, Debug)]
enum HostStep {
    Write { block: u64, version: u64 },
    Barrier,
    Read { block: u64 },
}

/// The progress that the hosts share.
#[derive(Debug, Default)]
struct Progress {
    writing: Cell<u64>,
    checked: Cell<u64>,
    moved: Cell<u64>,
}

#[derive(Debug)]
enum Role {
    /// Steps that were not submitted yet.
    Writer(VecDeque<HostStep>),
    Reader {
        /// Which journal, and the mark that was found in it.
        journal: u64,
        mark: Option<u64>,
        /// The mark that was found last in each.
        last: Vec<u64>,
        steps: VecDeque<HostStep>,
    },
}

/// A host on a core of its own.
#[derive(Debug)]
struct JournalHost {
    controller: Controller,
    channel: Option<RemoteChannel>,
    geometry: Geometry,
    scenario: Scenario,
    role: Role,
    progress: Rc<Progress>,
    prng: Prng,
    now: Time,
    /// There is more to submit, soon.
    paused: bool,
    closing: bool,
}

/// The first block of a journal: its mark. The entries follow.
const fn first(journal: u64, scenario: &Scenario) -> u64 {
    journal * (scenario.entries + 1)
}

/// All that a writer does.
fn plan(journal: u64, scenario: &Scenario, prng: &mut Prng) -> VecDeque<HostStep> {
    let first = first(journal, scenario);
    let mut steps = VecDeque::new();
    for version in 1..=scenario.rounds {
        let start = prng.below(scenario.entries);
        for i in 0..scenario.entries {
            let block = first + 1 + (start + i) % scenario.entries;
            steps.push_back(HostStep::Write { block, version });
        }
        if scenario.barriers {
            steps.push_back(HostStep::Barrier);
        }
        let block = first;
        steps.push_back(HostStep::Write { block, version });
    }
    steps
}

impl JournalHost {
    fn association(&self) -> &Arc<Association> {
        self.controller.association()
    }

    fn open(&mut self, cx: &mut Context<'_>) {
        if self.association().phase() != Phase::Live {
            return;
        }
        let namespace = RemoteNamespace::new(self.association(), 1).expect("it is live");
        self.geometry = namespace.geometry();
        let channel = namespace.open_remote(cx.driver);
        self.channel = Some(channel.expect("the association is live"));
    }

    /// The next step to submit; a reader that has checked a journal begins with the next one.
    fn next_step(&mut self) -> Option<HostStep> {
        let over = self.progress.writing.get() == 0;
        let outstanding = self.channel.as_ref().map_or(0, RemoteChannel::outstanding);
        match &mut self.role {
            Role::Writer(steps) => steps.pop_front(),
            Role::Reader { mark, .. } if mark.is_none() && over => None,
            Role::Reader {
                journal,
                mark,
                steps,
                ..
            } => {
                if steps.is_empty() && outstanding == 0 && mark.is_none() {
                    *journal = (*journal + 1) % self.scenario.writers;
                    let block = first(*journal, &self.scenario);
                    steps.push_back(HostStep::Read { block });
                }
                steps.pop_front()
            }
        }
    }

    fn give_back(&mut self, step: HostStep) {
        match &mut self.role {
            Role::Writer(steps) | Role::Reader { steps, .. } => steps.push_front(step),
        }
    }

    /// Submits a step; false when the channel is full.
    fn submit(&mut self, step: HostStep, cx: &mut Context<'_>) -> bool {
        let bytes = self.geometry.block_bytes as usize;
        let channel = self.channel.as_mut().expect("it is open");
        let (operation, block, version) = match step {
            // Any tag is the application's to give.
            HostStep::Barrier => return channel.barrier(u64::MAX, cx).is_ok(),
            HostStep::Read { block } => (Operation::Read, block, 0),
            HostStep::Write { block, version } => {
                (Operation::Write { durable: false }, block, version)
            }
        };
        let Some(buffer) = cx.driver.buffers().take(bytes) else {
            return false;
        };
        let mut data = IoSlice::from_buffer(buffer, bytes);
        data.copy_in(0, &version.to_le_bytes());
        let request = Request {
            tag: block,
            operation,
            lba: Lba(block),
            blocks: 1,
            data: Some(data),
        };
        match channel.submit(request, cx) {
            Submit::Queued => true,
            Submit::Busy(_) => false,
            Submit::Done(completion) => panic!("{completion:?}"),
        }
    }

    fn answered(&mut self, completion: &Completion) {
        assert_eq!(completion.result, Ok(()), "of {}", completion.tag);
        let scenario = self.scenario;
        let Role::Reader {
            journal,
            mark,
            last,
            steps,
        } = &mut self.role
        else {
            return;
        };
        let data = completion.data.as_ref().expect("a read's data comes back");
        let mut version = [0; 8];
        data.copy_out(0, &mut version);
        let version = u64::from_le_bytes(version);
        let first = first(*journal, &scenario);
        let Some(found) = *mark else {
            assert_eq!(completion.tag, first, "the mark comes first");
            *mark = Some(version);
            let blocks = first + 1..=first + scenario.entries;
            steps.extend(blocks.map(|block| HostStep::Read { block }));
            return;
        };
        assert!(
            version >= found,
            "journal {journal} is marked {found}, and its entry {} is of {version}",
            completion.tag - first
        );
        let outstanding = self.channel.as_ref().map_or(0, RemoteChannel::outstanding);
        if steps.is_empty() && outstanding == 0 {
            *mark = None;
            let last = &mut last[usize::try_from(*journal).expect("a few")];
            let moved = u64::from(std::mem::replace(last, found) != found);
            self.progress.checked.update(|checked| checked + 1);
            self.progress.moved.update(|all| all + moved);
        }
    }

    fn work(&mut self, cx: &mut Context<'_>) {
        while let Some(completion) = self.channel.as_mut().and_then(Channel::reap) {
            self.answered(&completion);
        }
        self.paused = false;
        while let Some(step) = self.next_step() {
            if !self.submit(step, cx) {
                self.give_back(step);
                break;
            }
            // Now and then what was submitted leaves by itself.
            if self.prng.chance(1, 4) {
                self.paused = true;
                break;
            }
        }
        let Some(channel) = &mut self.channel else {
            return;
        };
        channel.kick(cx);
        let done = match &self.role {
            Role::Writer(steps) => steps.is_empty(),
            Role::Reader { mark, .. } => mark.is_none() && self.progress.writing.get() == 0,
        };
        if done && channel.outstanding() == 0 && !self.closing {
            self.closing = true;
            channel.close(cx);
            if matches!(self.role, Role::Writer(_)) {
                self.progress.writing.update(|writing| writing - 1);
            }
        }
    }
}

impl Service for JournalHost {
    type Message = ();

    fn apply(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if self.controller.owns(completion.key.op_namespace) {
            return self.controller.complete(completion, cx);
        }
        let channel = self.channel.as_mut().expect("it has operations");
        channel.complete(completion, cx);
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.now = cx.now;
        self.controller.tick(cx);
        match &mut self.channel {
            None => self.open(cx),
            Some(channel) => {
                channel.tick(cx);
                self.work(cx);
            }
        }
    }

    fn deadline(&self) -> Time {
        let own = match &self.channel {
            Some(channel) if self.paused => channel.deadline().min(self.now + PAUSE),
            Some(channel) => channel.deadline(),
            None => Time::NEVER,
        };
        own.min(self.controller.deadline())
    }

    fn finished(&self) -> bool {
        self.closing
    }
}

/// Runs a scenario to its end on the device that is given.
///
/// # Panics
/// If a mark is found before its entries, if anything fails, or if a host hangs: with the seed in
/// the message.
#[must_use]
pub fn run(seed: u64, scenario: &Scenario, device: Arc<dyn Device>) -> Ending {
    let world = World::new(seed, scenario.faults);
    let shared = Target::new(Limits::default(), scenario.target_cores).expect("valid limits");
    shared
        .add_subsystem(SubsystemOptions::open_to_all(NQN))
        .expect("a new subsystem");
    add_namespace(&shared, NQN, 1, device, None);
    let tenants = vec![TenantOptions {
        name: "journal".to_owned(),
        ..TenantOptions::default()
    }];
    let others = Others::Refuse;
    shared
        .set_tenants(&Tenancy { tenants, others })
        .expect("a good tenancy");
    let (mut cores, address) = serve(&world, &shared, scenario.target_cores);
    let progress = Rc::new(Progress::default());
    progress.writing.set(scenario.writers);
    let mut hosts: Vec<_> = (0..scenario.writers + scenario.readers)
        .map(|index| host(&world, scenario, address, &progress, seed, index))
        .collect();
    let begun = world.now();
    let outcome = {
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        actors.extend(cores.iter_mut().map(|core| core as &mut dyn Actor));
        actors.extend(hosts.iter_mut().map(|core| core as &mut dyn Actor));
        let done = || progress.writing.get() == 0;
        world.run(&mut actors, begun + TIME_MAX, done)
    };
    assert_eq!(outcome, Outcome::Done, "seed {seed}: {progress:?}");
    Ending {
        checked: progress.checked.get(),
        moved: progress.moved.get(),
        cuts: world.network_totals().cuts,
    }
}

fn host(
    world: &World,
    scenario: &Scenario,
    address: SocketAddr,
    progress: &Rc<Progress>,
    seed: u64,
    index: u64,
) -> Core<SimDriver, JournalHost> {
    let mut driver = world.driver();
    let mut prng = Prng::from_seed(seed.wrapping_mul(31) ^ index);
    let name = format!("nqn.2026-11.io.example:journal{index}");
    let options = connects(address, NQN, &name, &mut prng);
    let options = ConnectOptions {
        queues: scenario.queues,
        persistent: true,
        loss_timeout: None,
        seed: prng.next_u64(),
        ..options
    };
    let role = if index < scenario.writers {
        Role::Writer(plan(index, scenario, &mut prng))
    } else {
        Role::Reader {
            journal: 0,
            mark: None,
            last: vec![0; usize::try_from(scenario.writers).expect("a few")],
            steps: VecDeque::new(),
        }
    };
    let service = JournalHost {
        controller: Controller::new(Controller::associate(options), &mut driver),
        channel: None,
        geometry: Geometry {
            block_bytes: 0,
            blocks: 0,
        },
        scenario: *scenario,
        role,
        progress: Rc::clone(progress),
        prng,
        now: Time::ZERO,
        paused: false,
        closing: false,
    };
    Core::new(driver, service, PollPolicy::Never)
}
