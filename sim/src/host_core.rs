//! A core of a simulated host: a controller, and an application on one of its namespaces.

use crate::client::{Client, Mix, ReadLog, Report, Tolerance, Workload};
use crate::oracle::Oracle;
use base::Nanos;
use block::Device;
use host::{Association, ConnectOptions, ConnectionError, Controller, Phase, RemoteNamespace};
use reactor::{Completion, Context, Driver, Service};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Blocks of a device that an application looks at which nobody judges.
const UNJUDGED_BLOCKS_MAX: u64 = 4096;

/// An application of a host.
#[derive(Clone, Debug)]
pub struct Application {
    /// The namespace that it works on.
    pub nsid: u32,
    /// What it does.
    pub workload: Workload,
    /// Seeds its requests.
    pub seed: u64,
    /// Which requests it makes.
    pub mix: Mix,
    /// Which errors it is ready for.
    pub tolerance: Tolerance,
    /// What it shares with others on the same device; nothing for a device of its own.
    pub oracle: Option<Rc<RefCell<Oracle>>>,
    /// The host that it runs on: whoever comes in its place is another one.
    pub host: u64,
    /// Whether answers are judged. Nobody judges those of a target that lies.
    pub judged: bool,
    /// After so many requests it asks for nothing for so long.
    pub rest: Option<(u64, Nanos)>,
    /// What comes of it.
    pub report: Rc<RefCell<Report>>,
}

impl Application {
    /// One on a device of its own, as namespace 1.
    #[must_use]
    pub fn alone(workload: Workload, seed: u64) -> Self {
        Self {
            nsid: 1,
            workload,
            seed,
            mix: Mix::default(),
            tolerance: Tolerance::Any,
            oracle: None,
            host: 1,
            judged: true,
            rest: None,
            report: Rc::default(),
        }
    }
}

/// What a run does to connections, and what nothing in it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provoked {
    /// Connections that work may be lost.
    pub losses: bool,
    /// What arrives may break the rules of the protocol.
    pub violations: bool,
}

/// The production host, with checking applications on top of it, each with a channel of its own.
#[derive(Debug)]
pub struct HostCore {
    controller: Controller,
    /// Those that have no channel yet.
    waiting: Vec<Application>,
    clients: Vec<Client>,
    report: Rc<RefCell<Report>>,
    log: Option<ReadLog>,
    /// What may happen to its connections; nothing for whatever may.
    provoked: Option<Provoked>,
    /// Associations that were live, as of the last turn.
    associations: u64,
    closing: bool,
}

impl HostCore {
    /// A host that connects as `options` say, and then works on namespace 1.
    #[must_use]
    pub fn new(
        options: ConnectOptions,
        workload: Workload,
        seed: u64,
        driver: &mut dyn Driver,
    ) -> Self {
        Self::with(options, vec![Application::alone(workload, seed)], driver)
    }

    /// A host that connects as `options` say, and these applications.
    ///
    /// # Panics
    /// Without any.
    #[must_use]
    pub fn with(
        options: ConnectOptions,
        applications: Vec<Application>,
        driver: &mut dyn Driver,
    ) -> Self {
        Self {
            controller: Controller::new(Controller::associate(options), driver),
            report: Rc::clone(&applications[0].report),
            waiting: applications,
            clients: Vec::new(),
            log: None,
            provoked: None,
            associations: 0,
            closing: false,
        }
    }

    /// The same host; each read of its applications is noted in `log`.
    #[must_use]
    pub fn noted_in(mut self, log: ReadLog) -> Self {
        self.log = Some(log);
        self
    }

    /// The same host, which panics where its connections meet anything that is not `provoked`.
    #[must_use]
    pub fn expecting(mut self, provoked: Provoked) -> Self {
        self.provoked = Some(provoked);
        self
    }

    /// Another volume came in the place of namespace `nsid`: those who have not opened it yet will
    /// find that one.
    pub fn is_replaced(&mut self, nsid: u32, oracle: &Rc<RefCell<Oracle>>) {
        for application in self.waiting.iter_mut().filter(|app| app.nsid == nsid) {
            application.oracle = Some(Rc::clone(oracle));
        }
    }

    /// What came of the first application's work so far; shared with the running host.
    #[must_use]
    pub fn report(&self) -> Rc<RefCell<Report>> {
        Rc::clone(&self.report)
    }

    /// The association that the work goes through.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        self.controller.association()
    }

    /// Whoever follows the rules is not accused of breaking them, and a connection that nothing
    /// disturbs is not lost.
    fn check_association(&self) {
        let Some(provoked) = self.provoked else {
            return;
        };
        let association = self.association();
        if self.closing || association.phase() == Phase::Live {
            return;
        }
        let error = association.last_error();
        let accuses = matches!(
            error,
            Some(ConnectionError::Protocol { .. } | ConnectionError::Terminated { .. })
        );
        assert!(
            provoked.violations || !accuses,
            "a host or its target is accused: {}",
            error.as_ref().map_or_else(String::new, ToString::to_string)
        );
        assert!(
            provoked.losses || association.phase() == Phase::Connecting,
            "a host lost its connections, and nothing provokes that: {}",
            error.as_ref().map_or_else(String::new, ToString::to_string)
        );
    }

    /// Opens the namespaces that applications wait for, as soon as they are there.
    fn start(&mut self, cx: &mut Context<'_>) {
        if self.association().phase() != Phase::Live {
            return;
        }
        for index in (0..self.waiting.len()).rev() {
            let nsid = self.waiting[index].nsid;
            let Ok(namespace) = RemoteNamespace::new(self.association(), nsid) else {
                continue;
            };
            let application = self.waiting.swap_remove(index);
            let mut geometry = namespace.geometry();
            if !application.judged {
                // It may be a lie, and everything that is known of a device is kept in memory.
                geometry.blocks = geometry.blocks.min(UNJUDGED_BLOCKS_MAX);
            }
            let channel = namespace.open(cx.driver).expect("the association is live");
            let client = Client::of(channel, geometry, namespace.capabilities(), application);
            self.clients.push(client.noted_in(self.log.clone()));
        }
    }
}

impl Service for HostCore {
    type Message = ();

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        if self.controller.owns(op_namespace) {
            return self.controller.complete(completion, cx);
        }
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.owns(op_namespace));
        let client = client.expect("only channels have other operations");
        client.apply(completion, cx);
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.controller.tick(cx);
        self.check_association();
        let associations = self.association().generation();
        if std::mem::replace(&mut self.associations, associations) != associations {
            self.clients.iter_mut().for_each(Client::is_reconnected);
        }
        if !self.waiting.is_empty() {
            self.start(cx);
        }
        for client in &mut self.clients {
            client.maintain(cx);
        }
        let over = self.waiting.is_empty() && self.clients.iter().all(Service::finished);
        if over && !self.closing {
            self.closing = true;
            self.association().close();
        }
    }

    fn deadline(&self) -> base::Time {
        let clients = self.clients.iter().filter(|client| !client.finished());
        let first = clients.map(Service::deadline).min();
        let first = first.unwrap_or(base::Time::NEVER);
        first.min(self.controller.deadline())
    }

    fn finished(&self) -> bool {
        self.closing && self.controller.closed()
    }
}
