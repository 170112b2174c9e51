//! The actors of a run: cores of targets and hosts.

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

/// Cores of a host with a switchboard.
pub(super) const SWITCHED_CORES: u32 = 2;

/// Maximum lanes of such a host to a target: one per core and class.
pub(super) const LANES: u16 = 4;

/// The process of a target.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) shared: Arc<Target>,
    pub(super) cores: Vec<TargetCore>,
    /// Dispatchers of the paths to its volumes.
    pub(super) dispatchers: Vec<DispatcherCore>,
    /// Free buffers of each core at its start.
    pub(super) buffers: Vec<Vec<usize>>,
    /// Knob change that its cores are applying.
    pub(super) turning: Option<Change>,
}

/// A host whose applications run on their own threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// The switchboard of the threads that submit through one; `None` after they have ended.
    pub(super) board: Option<Switchboard>,
    pub(super) dataplane: Vec<Core<SimDriver, EgressService>>,
    /// One controller per target.
    pub(super) controlling: Vec<Core<SimDriver, Controlling>>,
    /// One I/O path for each namespace that threads share.
    pub(super) paths: Vec<Core<SimDriver, PathCore>>,
    pub(super) apps: Vec<Core<SimDriver, App>>,
    /// The applications have ended.
    pub(super) left: bool,
}

/// How a host runs its applications.
#[derive(Debug)]
pub(super) enum Kind {
    /// All on one core, each with its own channel.
    Plain(Box<Core<SimDriver, HostCore>>),
    /// Each on one or more threads of its own.
    Threads(Box<Threads>),
}

/// A host with its applications.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) kind: Kind,
    pub(super) applications: Vec<Application>,
    /// Free buffers of each core at its start.
    pub(super) buffers: Vec<Vec<usize>>,
}

/// All actors.
#[derive(Debug, Default)]
pub(super) struct Cast {
    /// Processes of the targets; `None` while a target is down.
    pub(super) targets: Vec<Option<Process>>,
    /// Processes that take a target over, and those that were taken over, until they end.
    pub(super) beside: Vec<Process>,
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

    /// Adds the dispatcher of a path on a core of this machine.
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

    /// Returns its associations with all targets.
    pub(super) fn associations(&self) -> Vec<&Arc<Association>> {
        match &self.kind {
            Kind::Plain(core) => core.service.associations().collect(),
            Kind::Threads(host) => {
                let controlling = host.controlling.iter();
                controlling.map(|core| core.service.association()).collect()
            }
        }
    }

    /// Returns true if each of its threads has opened its namespace.
    pub(super) fn has_opened(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) => true,
            Kind::Threads(host) => host.apps.iter().all(|app| app.service.has_opened()),
        }
    }

    /// Returns how often an association of the host was live if it has ended for good before its
    /// applications; `None` otherwise.
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

    /// Returns its first driver. All its drivers are on one machine.
    pub(super) fn driver(&self) -> &SimDriver {
        self.drivers()[0]
    }

    /// Stalls all its cores until `until`.
    pub(super) fn hold(&mut self, until: Time) {
        let mut actors = Vec::new();
        self.add_actors(&mut actors);
        actors.into_iter().for_each(|actor| actor.hold(until));
    }

    /// Creates a host, and records its free buffers for the check at the end.
    pub(super) fn new(kind: Kind, applications: Vec<Application>) -> Self {
        let mut host = Self {
            kind,
            applications,
            buffers: Vec::new(),
        };
        host.buffers = host.each_free();
        host
    }

    /// Returns the free buffers of each of its cores.
    fn each_free(&self) -> Vec<Vec<usize>> {
        let drivers = self.drivers().into_iter();
        drivers.map(SimDriver::free_buffers).collect()
    }

    /// Returns the free buffers of each of its cores, now and at the start.
    pub(super) fn free_buffers(&self) -> (Vec<Vec<usize>>, &Vec<Vec<usize>>) {
        (self.each_free(), &self.buffers)
    }

    /// Stops new requests from the applications of a host without a switchboard.
    pub(super) fn stop_asking(&mut self) {
        if let Kind::Plain(core) = &mut self.kind {
            core.service.leave();
        }
    }

    /// Ends a host after its applications have ended. Returns true when it has ended.
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

    /// Asserts that the host has freed all its resources.
    pub(super) fn check_end(&self) {
        assert_eq!(self.each_free(), self.buffers, "a host keeps buffers");
        for driver in self.drivers() {
            assert_eq!(driver.open_sockets(), 0, "a host keeps sockets");
        }
    }
}

impl Cast {
    /// Returns all actors.
    pub(super) fn actors(&mut self) -> Vec<&mut dyn Actor> {
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        for target in self.targets.iter_mut().flatten().chain(&mut self.beside) {
            actors.extend(target.actors());
        }
        for host in self.hosts.iter_mut().chain(&mut self.liar) {
            host.add_actors(&mut actors);
        }
        actors
    }

    /// Stalls one core of a target until `until`; with the first core also the dispatchers.
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

    /// Returns the first host from `host` on, cyclically, with matching threads.
    pub(super) fn host_of_threads(
        &mut self,
        host: usize,
        meant: impl Fn(&Threads) -> bool,
    ) -> Option<&mut Host> {
        let (before, from) = self.hosts.split_at_mut(host);
        let mut hosts = from.iter_mut().chain(before);
        hosts.find(|host| matches!(&host.kind, Kind::Threads(threads) if meant(threads)))
    }

    /// Returns the matching threads of that host.
    fn threads(&mut self, host: usize, meant: impl Fn(&Threads) -> bool) -> Option<&mut Threads> {
        match &mut self.host_of_threads(host, meant)?.kind {
            Kind::Threads(threads) => Some(threads),
            Kind::Plain(_) => None,
        }
    }

    /// Stalls one core that sends for the threads of a host, or all of them, until `until`: of the
    /// first host from `host` on, cyclically, that has such cores.
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

    /// Stalls one thread that shares an I/O path until `until`, on the first host from `host` on,
    /// cyclically, that has such threads. Returns true if there is one.
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

    /// Returns the time from which no core of a target is stalled.
    pub(super) fn stands_until(&self, target: usize) -> Time {
        let cores = self.targets[target].iter().flat_map(|target| &target.cores);
        let busy = cores.map(|core| core.driver.busy_until());
        busy.max().unwrap_or(Time::ZERO)
    }

    /// Advances the clock of a target's machine.
    pub(super) fn jump_target(&self, target: usize, by: Nanos) {
        if let Some(process) = &self.targets[target] {
            process.cores[0].driver.jump_clock(by);
        }
    }
}
