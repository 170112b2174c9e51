//! The actors of a run: the cores of targets and of hosts.

use super::volume::DispatcherCore;
use crate::app::App;
use crate::application::{Application, Replacement};
use crate::controlling::Controlling;
use crate::driver::SimDriver;
use crate::host_core::HostCore;
use crate::path_core::PathCore;
use crate::storage::TargetCore;
use crate::world::Actor;
use base::{Nanos, Time};
use host::switchboard::EgressService;
use host::{Association, Phase, Switchboard};
use reactor::{Core, Service};
use std::sync::Arc;
use target::{Change, Target};

/// Cores of a host that has a switchboard.
pub(super) const SWITCHED_CORES: u32 = 2;

/// Lanes of such a host to a target, at most: one for each core and class.
pub(super) const LANES: u16 = 4;

/// The process of a target.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) shared: Arc<Target>,
    pub(super) cores: Vec<TargetCore>,
    /// Those of the paths to its volumes.
    pub(super) dispatchers: Vec<DispatcherCore>,
    /// Free buffers of each core when it began.
    pub(super) buffers: Vec<Vec<usize>>,
    /// Knobs that are being turned.
    pub(super) turning: Option<Change>,
}

/// A host with applications on threads of their own.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// The switchboard of those that submit through one, until they have ended.
    pub(super) board: Option<Switchboard>,
    pub(super) dataplane: Vec<Core<SimDriver, EgressService>>,
    /// One for each target.
    pub(super) controlling: Vec<Core<SimDriver, Controlling>>,
    /// One for each namespace that threads reach by an I/O path.
    pub(super) paths: Vec<Core<SimDriver, PathCore>>,
    pub(super) apps: Vec<Core<SimDriver, App>>,
    /// The applications have ended.
    pub(super) left: bool,
}

/// The way in which a host runs its applications.
#[derive(Debug)]
pub(super) enum Kind {
    /// All on one core, each with a channel of its own.
    Plain(Box<Core<SimDriver, HostCore>>),
    /// Each on a thread of its own, or several.
    Threads(Box<Threads>),
}

/// A host, and what its applications have to do.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) kind: Kind,
    pub(super) applications: Vec<Application>,
    /// Free buffers of each core when it began.
    pub(super) buffers: Vec<Vec<usize>>,
}

/// All actors.
#[derive(Debug, Default)]
pub(super) struct Cast {
    /// Those that run.
    pub(super) targets: Vec<Option<Process>>,
    pub(super) hosts: Vec<Host>,
    pub(super) liar: Option<Host>,
}

impl Process {
    pub(super) fn actors(&mut self) -> impl Iterator<Item = &mut dyn Actor> {
        let dispatchers = self.dispatchers.iter_mut();
        let dispatchers = dispatchers.map(|core| core as &mut dyn Actor);
        let cores = self.cores.iter_mut().map(|core| core as &mut dyn Actor);
        cores.chain(dispatchers)
    }

    /// The dispatcher of a path runs on a core of the machine.
    pub(super) fn add_dispatcher(&mut self, mut dispatcher: DispatcherCore) {
        dispatcher.driver.shares_clock_with(&self.cores[0].driver);
        self.dispatchers.push(dispatcher);
    }
}

impl Host {
    fn add_actors<'a>(&'a mut self, actors: &mut Vec<&'a mut dyn Actor>) {
        match &mut self.kind {
            Kind::Plain(core) => actors.push(&mut **core),
            Kind::Threads(host) => {
                let Threads {
                    dataplane,
                    controlling,
                    paths,
                    apps,
                    ..
                } = &mut **host;
                actors.extend(dataplane.iter_mut().map(|core| core as &mut dyn Actor));
                actors.extend(controlling.iter_mut().map(|core| core as &mut dyn Actor));
                actors.extend(paths.iter_mut().map(|core| core as &mut dyn Actor));
                actors.extend(apps.iter_mut().map(|core| core as &mut dyn Actor));
            }
        }
    }

    /// Its associations with all targets.
    pub(super) fn associations(&self) -> Vec<&Arc<Association>> {
        match &self.kind {
            Kind::Plain(core) => core.service.associations().collect(),
            Kind::Threads(host) => {
                let controlling = host.controlling.iter();
                controlling.map(|core| core.service.association()).collect()
            }
        }
    }

    /// Returns true if each of its threads has opened the way to its namespace.
    pub(super) fn has_opened(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) => true,
            Kind::Threads(host) => host.apps.iter().all(|app| app.service.has_opened()),
        }
    }

    /// Returns how often an association of the host was live that has ended for good, although its
    /// applications have not.
    pub(super) fn gave_up(&self) -> Option<u64> {
        let associations = self.associations().into_iter();
        let mut over = associations.filter(|association| association.phase() == Phase::Gone);
        let finished = match &self.kind {
            Kind::Plain(core) => core.service.finished() || core.service.is_closing(),
            Kind::Threads(host) => host.left,
        };
        let over = over.next().map(|association| association.generation());
        over.filter(|_| !finished)
    }

    pub(super) fn is_replaced(&mut self, by: &Replacement<'_>) {
        match &mut self.kind {
            Kind::Plain(core) => core.service.is_replaced(by),
            Kind::Threads(host) => {
                let apps = host.apps.iter_mut();
                apps.for_each(|app| app.service.is_replaced(by));
            }
        }
    }

    fn drivers(&self) -> Vec<&SimDriver> {
        match &self.kind {
            Kind::Plain(core) => vec![&core.driver],
            Kind::Threads(host) => {
                let dataplane = host.dataplane.iter().map(|core| &core.driver);
                let controlling = host.controlling.iter().map(|core| &core.driver);
                let paths = host.paths.iter().map(|core| &core.driver);
                let apps = host.apps.iter().map(|core| &core.driver);
                let threads = paths.chain(apps);
                dataplane.chain(controlling).chain(threads).collect()
            }
        }
    }

    /// Its first driver, which stands for all: they are on one machine.
    pub(super) fn driver(&self) -> &SimDriver {
        self.drivers()[0]
    }

    /// All its cores stop until then.
    pub(super) fn hold(&mut self, until: Time) {
        let mut actors = Vec::new();
        self.add_actors(&mut actors);
        actors.into_iter().for_each(|actor| actor.hold(until));
    }

    /// Makes a host, and notes what it has, to compare with at the end.
    pub(super) fn new(kind: Kind, applications: Vec<Application>) -> Self {
        let mut host = Self {
            kind,
            applications,
            buffers: Vec::new(),
        };
        host.buffers = host.each_free();
        host
    }

    /// Free buffers of each of its cores.
    fn each_free(&self) -> Vec<Vec<usize>> {
        let drivers = self.drivers().into_iter();
        drivers.map(SimDriver::free_buffers).collect()
    }

    /// Free buffers of each of its cores, and how many it began with.
    pub(super) fn free_buffers(&self) -> (Vec<Vec<usize>>, &Vec<Vec<usize>>) {
        (self.each_free(), &self.buffers)
    }

    /// Lets the applications of a host without a switchboard ask for nothing more.
    pub(super) fn stop_asking(&mut self) {
        if let Kind::Plain(core) = &mut self.kind {
            core.service.leave();
        }
    }

    /// Lets a host end itself once its applications have ended. Returns true once it has.
    pub(super) fn leaves(&mut self) -> bool {
        match &mut self.kind {
            Kind::Plain(core) => core.service.finished(),
            Kind::Threads(host) => {
                if !host.left && host.apps.iter().all(|app| app.service.finished()) {
                    host.left = true;
                    host.board = None;
                    host.paths.iter_mut().for_each(|core| core.service.leave());
                    for core in &host.controlling {
                        core.service.association().close();
                    }
                }
                let dataplane = host.dataplane.iter().all(|core| core.service.finished());
                let controlling = host.controlling.iter().all(|core| core.service.finished());
                let paths = host.paths.iter().all(|core| core.service.finished());
                host.left && dataplane && controlling && paths
            }
        }
    }

    /// Nothing is left of what it had.
    pub(super) fn check_end(&self) {
        assert_eq!(self.each_free(), self.buffers, "a host keeps buffers");
        for driver in self.drivers() {
            assert_eq!(driver.open_sockets(), 0, "a host keeps sockets");
        }
    }
}

impl Cast {
    /// Returns all that may act.
    pub(super) fn actors(&mut self) -> Vec<&mut dyn Actor> {
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        for target in self.targets.iter_mut().flatten() {
            actors.extend(target.actors());
        }
        for host in self.hosts.iter_mut().chain(&mut self.liar) {
            host.add_actors(&mut actors);
        }
        actors
    }

    /// The machine of a target stops for so long, as far as one of its cores goes. Dispatchers are
    /// on the first one.
    pub(super) fn pause_target(&mut self, target: usize, core: usize, until: Time) {
        let Some(process) = &mut self.targets[target] else {
            return;
        };
        if let Some(core) = process.cores.get_mut(core) {
            core.hold(until);
        }
        if core == 0 {
            let dispatchers = process.dispatchers.iter_mut();
            dispatchers.for_each(|dispatcher| dispatcher.hold(until));
        }
    }

    /// The first host from that one on, round and round, with threads that are meant.
    pub(super) fn host_of_threads(
        &mut self,
        host: usize,
        meant: impl Fn(&Threads) -> bool,
    ) -> Option<&mut Host> {
        let (before, from) = self.hosts.split_at_mut(host);
        let mut hosts = from.iter_mut().chain(before);
        hosts.find(|host| matches!(&host.kind, Kind::Threads(threads) if meant(threads)))
    }

    /// The threads of that host.
    fn threads(&mut self, host: usize, meant: impl Fn(&Threads) -> bool) -> Option<&mut Threads> {
        match &mut self.host_of_threads(host, meant)?.kind {
            Kind::Threads(threads) => Some(threads),
            Kind::Plain(_) => None,
        }
    }

    /// One of the cores that send for the threads of a host stops until then, or all of them: of the
    /// first host from that one on that has any.
    pub(super) fn pause_host_cores(&mut self, host: usize, core: Option<usize>, until: Time) {
        let Some(Threads { dataplane, .. }) = self.threads(host, |t| !t.dataplane.is_empty())
        else {
            return;
        };
        let core = core.map(|core| core % dataplane.len());
        let stops = |&(index, _): &(usize, _)| core.is_none_or(|core| core == index);
        let stopped = dataplane.iter_mut().enumerate().filter(stops);
        stopped.for_each(|(_, core)| core.hold(until));
    }

    /// One of the threads that share an I/O path stops until then, of the first host from that one on
    /// that has any. Returns true if there is one.
    pub(super) fn pause_thread(&mut self, host: usize, thread: usize, until: Time) -> bool {
        let Some(host) = self.threads(host, |threads| !threads.paths.is_empty()) else {
            return false;
        };
        let paths = host.paths.iter_mut().map(|core| &mut core.driver);
        let drivers = paths.chain(host.apps.iter_mut().map(|core| &mut core.driver));
        let mut drivers: Vec<_> = drivers.collect();
        let all = drivers.len();
        drivers[thread % all].hold(until);
        true
    }

    /// Time from which on no core of a target stands still.
    pub(super) fn stands_until(&self, target: usize) -> Time {
        let cores = self.targets[target].iter().flat_map(|target| &target.cores);
        let busy = cores.map(|core| core.driver.busy_until());
        busy.max().unwrap_or(Time::ZERO)
    }

    /// The clock of a target's machine jumps ahead.
    pub(super) fn jump_target(&self, target: usize, by: Nanos) {
        if let Some(process) = &self.targets[target] {
            process.cores[0].driver.jump_clock(by);
        }
    }
}
