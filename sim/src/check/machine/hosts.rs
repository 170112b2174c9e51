//! Hosts, and their applications.

use super::super::cast::{Kind, SWITCHED_CORES, Threads};
use super::super::path::HostPath;
use super::*;
use crate::Mix;
use crate::app::{App, Job, Through};
use crate::application::{Tolerance, Workload};
use crate::changing::Changes;
use crate::controlling::Controlling;
use crate::driver::SimDriver;
use crate::host_core::HostCore;
use crate::knob_changes::random_position;
use crate::path_core::{PathCore, PathJob};
use crate::rights::Law;
use crate::storage::connects;
use crate::switched::switchboard;
use base::units::CoreId;
use host::{ConnectOptions, ReplayPolicy, Switchboard, SwitchboardOptions};
use reactor::{Core, PollPolicy};
use switch::{Class, Knobs};

/// Maximum time to close a host's connections, which hold the memory of requests until then.
const CLOSES: Nanos = Nanos::from_secs(1);

/// Threads of each application of a host with an I/O path that always use the path.
const SHARERS: usize = 2;

/// Maximum wait of a request for a runner of its path that sleeps or is stalled, before another
/// thread runs its queue.
const TAKES_OVER: Nanos = Nanos::from_secs(2);

/// Splits the work of an application among `threads` threads.
fn shares(whole: &Application, threads: usize) -> impl Iterator<Item = Application> {
    let all = whole.workload.requests;
    let mut prng = Prng::from_seed(whole.seed);
    (0..threads as u64).map(move |thread| {
        let requests = all / threads as u64 + u64::from(thread < all % threads as u64);
        Application {
            workload: Workload {
                requests,
                ..whole.workload
            },
            seed: prng.next_u64(),
            rest: whole.rest.map(|(_, rest)| (requests / 2, rest)),
            reopens: false,
            report: Rc::default(),
            ..whole.clone()
        }
    })
}

impl Machine {
    /// Returns the applications of a host, assigned to the volumes of each target in turn.
    pub(super) fn applications(&mut self, host: usize) -> Vec<Application> {
        self.hosts_made += 1;
        let mut applications = Vec::new();
        for target in 0..self.plan.targets {
            for number in 0..self.plan.applications {
                let place = (host + number) % self.plan.volumes;
                let seed = self.prng.next_u64();
                let known = &self.known[target];
                let volume = &known.volumes[place];
                let application = Application {
                    target,
                    nsid: u32::try_from(place + 1).expect("a few"),
                    mix: Mix::Everything,
                    tolerance: self.tolerance(host, place),
                    host: self.hosts_made,
                    oracle: Some(Rc::clone(&volume.oracle)),
                    law: Some(Law {
                        rights: known.rights[host][place].clone(),
                        extent: volume.extent.clone(),
                    }),
                    rest: Some((self.plan.workload.requests / 2, self.plan.rest)),
                    extents: self.has(Feature::Extents),
                    gives_up: self.has(Feature::GiveUps),
                    syncs: self.has(Feature::Syncs) && (host + target).is_multiple_of(2),
                    splits: self.has(Feature::Splits) && (host + target).is_multiple_of(2),
                    reopens: self.reopens(),
                    alone: self.plan.hosts == 1 && !self.has(Feature::HostCrashes),
                    waits: self.waits(host),
                    asks_anew: self.asks_anew(host),
                    deaths: self.has_deaths(host),
                    answered: Rc::clone(&self.answered),
                    ..Application::alone(self.plan.workload, seed)
                };
                match self.plan.paths[host] {
                    Some(path) => applications.extend(shares(&application, path.threads)),
                    None => applications.push(application),
                }
            }
        }
        applications
    }

    /// True if applications open new channels after closing theirs. Closing a channel with
    /// cancelled requests costs the association, and blocks of lost writes are closed when their
    /// namespace returns: errors that no checker expects of a newly opened channel.
    fn reopens(&self) -> bool {
        let others = [
            Feature::GiveUps,
            Feature::Removals,
            Feature::OtherVolume,
            Feature::Subsystems,
            Feature::OtherLimits,
        ];
        self.has(Feature::Reopens) && !others.into_iter().any(|feature| self.has(feature))
    }

    /// Returns the maximum wait of requests for a connection; `None` for no limit. A stalled host
    /// fails no requests meanwhile.
    fn waits(&self, host: usize) -> Option<Nanos> {
        let pauses = [Feature::Pauses, Feature::CorePauses, Feature::Jumps];
        let stands_still = pauses.into_iter().any(|feature| self.has(feature));
        let limit = self.plan.loss_timeout?;
        let limit = match self.plan.paths[host] {
            Some(_) => limit + TAKES_OVER,
            None => limit,
        };
        Some(if stands_still {
            Nanos(u64::MAX)
        } else {
            limit + CLOSES
        })
    }

    /// True if applications replace requests that find no connection or queue. Lanes of a
    /// switchboard keep their queues until the end, so an application without a queue may never get
    /// one.
    fn asks_anew(&self, host: usize) -> bool {
        let may_lack_queues = self.has(Feature::OtherLimits);
        if self.plan.has_board(host) {
            !may_lack_queues && self.plan.loss_timeout.is_some()
        } else {
            may_lack_queues || self.plan.loss_timeout.is_some()
        }
    }

    /// True if threads of this host die.
    fn has_deaths(&self, host: usize) -> bool {
        self.plan.paths[host].is_some() && self.has(Feature::ThreadDeaths)
    }

    /// Returns the errors that an application of this host must tolerate on this volume.
    fn tolerance(&self, host: usize, place: usize) -> Tolerance {
        let tolerance = self.plan.tolerance.of_volume(self.may_go(place));
        if self.has_deaths(host) {
            tolerance.with_deaths()
        } else {
            tolerance
        }
    }

    /// True if this volume may be replaced, or temporarily removed.
    fn may_go(&self, place: usize) -> bool {
        let replaced = place == 0 && self.has(Feature::OtherVolume);
        replaced
            || self.has(Feature::Subsystems)
            || place + 1 == self.plan.volumes && self.has(Feature::Removals)
    }

    fn options(&mut self, subsystem: &str, name: &str, address: SocketAddr) -> ConnectOptions {
        let mut options = connects(address, subsystem, name, &mut self.prng);
        orphans::mark(&mut options.host.id, self.hosts_made);
        let digests = self.has(Feature::Digests);
        ConnectOptions {
            queues: self.plan.queues,
            header_digest: digests,
            data_digest: digests,
            sq_flow_control: self.has(Feature::FlowControl),
            persistent: true,
            keep_alive: self.plan.keep_alive,
            command_timeout: self.plan.command_timeout,
            loss_timeout: self.plan.loss_timeout.filter(|_| subsystem == SUBSYSTEM),
            keep_reconnecting: true,
            replay: ReplayPolicy::WhenSafe,
            seed: self.prng.next_u64(),
            ..options
        }
    }

    /// Adds the keys with which a host proves its name.
    fn with_keys(&self, host: usize, options: ConnectOptions) -> ConnectOptions {
        let (keys, proofs) = (&self.keys[host], &self.plan.proofs);
        let tls = keys.tls.iter().filter(|_| proofs.has_tls(host));
        let [secret, _] = &keys.chap;
        ConnectOptions {
            tls_keys: tls.cloned().collect(),
            chap_secret: proofs.has_chap(host).then(|| secret.clone()),
            chap_controller_secret: proofs.is_mutual(host).then(|| keys.controller.clone()),
            ..options
        }
    }

    /// Creates a host with these applications that connects to all targets.
    pub(super) fn host(&mut self, number: usize, applications: Vec<Application>) -> Host {
        let addresses: Vec<_> = self.known.iter().map(|known| known.address).collect();
        let name = host_name(number);
        let options: Vec<_> = addresses
            .into_iter()
            .map(|address| {
                let options = self.options(SUBSYSTEM, &name, address);
                self.with_keys(number, options)
            })
            .collect();
        let reports = applications.iter().map(|app| Rc::clone(&app.report));
        self.reports.extend(reports);
        let kind = if let Some(path) = self.plan.paths[number] {
            self.by_path(options, path, &applications)
        } else if self.plan.switched[number] {
            self.switched(options, &applications)
        } else {
            let mut driver = self.world.driver();
            let core = HostCore::with(options, applications.clone(), &mut driver);
            let core = core.expecting(self.plan.provoked);
            Kind::Plain(Box::new(Core::new(driver, core, PollPolicy::Never)))
        };
        Host::new(kind, applications)
    }

    /// Creates a host whose applications are threads that submit through a switchboard.
    fn switched(&mut self, options: Vec<ConnectOptions>, applications: &[Application]) -> Kind {
        let (board, mut threads) = self.board(options);
        let controlling = &threads.controlling;
        let apps = applications.iter().map(|application| {
            let class = self.class();
            let changes = if self.prng.chance(1, 3) {
                Changes::Often(8)
            } else {
                Changes::Never
            };
            let association = controlling[application.target].service.association();
            let job = Job {
                association: Arc::clone(association),
                application: application.clone(),
                medium: None,
                class,
                changes,
                changed: Rc::default(),
            };
            let mut driver = self.world.driver();
            driver.belongs_to(&controlling[0].driver);
            driver.wander(8, SWITCHED_CORES);
            let app = App::new(job, board.clone(), self.prng.next_u64());
            Core::new(driver, app, PollPolicy::Never)
        });
        threads.apps = apps.collect();
        Kind::Threads(Box::new(threads))
    }

    /// Draws the class of a thread.
    fn class(&mut self) -> Class {
        Class::ALL[usize::from(self.prng.chance(1, 2))]
    }

    /// Creates the controllers of a host, and its switchboard with cores.
    fn board(&mut self, options: Vec<ConnectOptions>) -> (Switchboard, Threads) {
        let knobs = random_position(&mut self.prng, &Knobs::default());
        let options = options.into_iter();
        let controlling =
            self.controlling(options.map(|options| ConnectOptions { knobs, ..options }));
        let board = SwitchboardOptions {
            cores: (0..SWITCHED_CORES).map(CoreId).collect(),
            knobs,
        };
        let (board, dataplane) = switchboard(&self.world, &controlling[0].driver, &board);
        let threads = Threads {
            board: Some(board.clone()),
            dataplane,
            controlling,
            ..Threads::default()
        };
        (board, threads)
    }

    /// Creates the controllers of a host.
    fn controlling(
        &self,
        options: impl Iterator<Item = ConnectOptions>,
    ) -> Vec<Core<SimDriver, Controlling>> {
        let mut controlling: Vec<Core<SimDriver, Controlling>> = Vec::new();
        for options in options {
            let mut driver = self.world.driver();
            if let Some(first) = controlling.first() {
                driver.belongs_to(&first.driver);
            }
            let service = Controlling::new(options, &mut driver).expecting(self.plan.provoked);
            controlling.push(Core::new(driver, service, PollPolicy::Never));
        }
        controlling
    }

    /// Creates a host whose applications are threads, most of which share an I/O path to each
    /// namespace.
    fn by_path(
        &mut self,
        options: Vec<ConnectOptions>,
        path: HostPath,
        applications: &[Application],
    ) -> Kind {
        let mut threads = if path.switched {
            self.board(options).1
        } else {
            Threads {
                controlling: self.controlling(options.into_iter()),
                ..Threads::default()
            }
        };
        let Threads {
            board, controlling, ..
        } = &threads;
        let association = |target: usize| Arc::clone(controlling[target].service.association());
        let driver = |world: &World| {
            let mut driver = world.driver();
            driver.belongs_to(&controlling[0].driver);
            if path.switched {
                driver.wander(8, SWITCHED_CORES);
            }
            driver
        };
        let mut paths = BTreeMap::new();
        let mut apps = Vec::new();
        for (number, application) in applications.iter().enumerate() {
            let place = (application.target, application.nsid);
            let class = if path.switched {
                self.class()
            } else {
                Class::DEFAULT
            };
            let core = paths.entry(place).or_insert_with(|| {
                let job = PathJob {
                    association: association(application.target),
                    nsid: application.nsid,
                    spec: path.drawn.spec(),
                    depth: path.depth,
                    board: board.clone().map(|board| (board, class)),
                    deposed: Rc::clone(&self.deposed),
                };
                Core::new(driver(&self.world), PathCore::new(job), PollPolicy::Never)
            });
            let thread = number % path.threads;
            let through = if thread >= SHARERS && self.prng.chance(1, 2) {
                board.clone().map_or(Through::Own, Through::Board)
            } else {
                Through::Path {
                    path: core.service.shared(),
                    awaited: path.drawn.awaited || self.prng.chance(1, 2),
                    only_in_calls: path.only_in_calls,
                }
            };
            let job = Job {
                association: association(application.target),
                application: application.clone(),
                medium: None,
                class,
                changes: Changes::Never,
                changed: Rc::default(),
            };
            let app = App::by(job, through, self.prng.next_u64());
            apps.push(Core::new(driver(&self.world), app, PollPolicy::Never));
        }
        threads.paths = paths.into_values().collect();
        threads.apps = apps;
        Kind::Threads(Box::new(threads))
    }

    /// Adds a host that exchanges changed PDUs, on its own subsystem, unchecked by an oracle.
    pub(super) fn add_liar(&mut self) {
        self.hosts_made += 1;
        let workload = Workload {
            requests: u64::MAX,
            ..self.plan.workload
        };
        let application = Application {
            mix: Mix::Everything,
            judged: false,
            ..Application::alone(workload, self.prng.next_u64())
        };
        let address = self.known[0].address;
        let options = self.options(LIARS, "nqn.2026-11.io.switchyard:liar", address);
        let mut driver = self.world.driver();
        let core = HostCore::with(vec![options], vec![application.clone()], &mut driver);
        let (lies, one_in) = (self.plan.lies, self.plan.lie_one_in);
        self.world.tell_lies(&driver, lies, one_in);
        let kind = Kind::Plain(Box::new(Core::new(driver, core, PollPolicy::Never)));
        self.cast.borrow_mut().liar = Some(Host::new(kind, vec![application]));
    }
}
