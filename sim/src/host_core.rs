//! A core of a simulated host: a controller, and an application on one of its namespaces.

use crate::application::{Application, ApplicationReport, Replacement, Workload};
use crate::client::{Client, ReadLog, Way};
use base::{Nanos, Time};
use block::Device;
use host::{Association, ConnectOptions, ConnectionError, Controller, Phase, RemoteNamespace};
use reactor::{Completion, Context, Driver, Service};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Interval in which an application looks whether it can open another channel.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// Interval in which one does that of which the controller had no I/O queue left: others have them for
/// as long as they have work.
pub(crate) const QUEUE_PATIENCE: Nanos = Nanos::from_millis(50);

/// Blocks of a device that an unjudged application looks at.
const UNJUDGED_BLOCKS_MAX: u64 = 4096;

/// Disturbances that a run brings to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provoked {
    /// Connections that work may be lost.
    pub losses: bool,
    /// Violations of the protocol may arrive.
    pub violations: bool,
    /// Applications give requests up, which may cost connections.
    pub given_up: bool,
}

impl Provoked {
    /// Asserts that a peer that follows the rules is not accused of breaking them, and that a
    /// connection that nothing disturbs is not lost.
    ///
    /// # Panics
    /// If one is.
    pub(crate) fn check(self, association: &Association) {
        if association.phase() == Phase::Live {
            return;
        }
        let error = association.last_error();
        let accuses = matches!(
            error,
            Some(ConnectionError::Protocol { .. } | ConnectionError::Terminated { .. })
        );
        assert!(
            self.violations || !accuses,
            "a host or its target is accused: {}",
            error.as_ref().map_or_else(String::new, ToString::to_string)
        );
        let given_up = match error {
            Some(ConnectionError::GivenUp { .. }) => true,
            // A fence of the association that was given up is overdue before another one is live.
            Some(ConnectionError::TimedOut { what, .. }) => what.contains("lost with a connection"),
            _ => false,
        };
        assert!(
            self.losses || (self.given_up && given_up) || association.phase() == Phase::Connecting,
            "a host lost its connections, and nothing provokes that: {}",
            error.as_ref().map_or_else(String::new, ToString::to_string)
        );
    }
}

/// The production host, with checking applications on top of it, each with a channel of its own.
#[derive(Debug)]
pub struct HostCore {
    /// One for each target.
    controllers: Vec<Controller>,
    /// Those that have no channel yet.
    waiting: Vec<Application>,
    clients: Vec<Client>,
    report: Rc<RefCell<ApplicationReport>>,
    log: Option<ReadLog>,
    /// Disturbances of its connections; `None` if any may happen.
    provoked: Option<Provoked>,
    /// Associations with each target that were live, as of the last turn.
    associations: Vec<u64>,
    /// Time at which those are looked at that wait for another channel.
    look_at: Time,
    /// Time before which none asks for an I/O queue, since others have all.
    asks_at: Time,
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
        let application = Application::alone(workload, seed);
        Self::with(vec![options], vec![application], driver)
    }

    /// A host that connects to each target as its `options` say, and these applications.
    ///
    /// # Panics
    /// Without any.
    #[must_use]
    pub fn with(
        options: Vec<ConnectOptions>,
        applications: Vec<Application>,
        driver: &mut dyn Driver,
    ) -> Self {
        let targets = options.len();
        let controllers = options.into_iter();
        let controllers = controllers
            .map(|options| Controller::new(Controller::associate(options), driver))
            .collect();
        Self {
            controllers,
            report: Rc::clone(&applications[0].report),
            waiting: applications,
            clients: Vec::new(),
            log: None,
            provoked: None,
            associations: vec![0; targets],
            look_at: Time::NEVER,
            asks_at: Time::ZERO,
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

    /// Notes that another volume came in the place of a namespace: applications that have not opened
    /// it yet will find that one.
    pub(crate) fn is_replaced(&mut self, by: &Replacement<'_>) {
        let waiting = self.waiting.iter_mut();
        waiting.for_each(|application| application.is_replaced(by));
        let clients = self.clients.iter_mut();
        clients.for_each(|client| client.is_replaced(by));
    }

    /// Returns the results of the first application so far; shared with the running host.
    #[must_use]
    pub fn report(&self) -> Rc<RefCell<ApplicationReport>> {
        Rc::clone(&self.report)
    }

    /// Returns true once its applications have ended.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.closing
    }

    /// The association with the first target.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        self.controllers[0].association()
    }

    /// The associations with all targets.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Association>> {
        self.controllers.iter().map(Controller::association)
    }

    /// Lets its applications ask for nothing more, and end.
    pub(crate) fn leave(&mut self) {
        self.waiting.clear();
        self.clients.iter_mut().for_each(Client::leave);
    }

    /// Opens other channels in the place of those that their applications have closed. Those that are
    /// over leave their queues to others.
    fn reopen(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(client) = self.clients.get_mut(index) {
            if let Some(next) = client.take_next() {
                self.clients.remove(index);
                self.waiting.push(next);
                self.look_at = cx.now;
            } else if client.finished() {
                self.clients.remove(index);
            } else {
                index += 1;
            }
        }
        if self.look_at <= cx.now {
            self.start(cx);
            self.look_at = if self.waiting.is_empty() {
                Time::NEVER
            } else {
                cx.now + PATIENCE
            };
        }
    }

    /// Opens the namespaces that applications wait for, as soon as they are there.
    fn start(&mut self, cx: &mut Context<'_>) {
        if cx.now < self.asks_at {
            return;
        }
        for index in (0..self.waiting.len()).rev() {
            let Application { target, nsid, .. } = self.waiting[index];
            let association = self.controllers[target].association();
            if association.phase() != Phase::Live {
                continue;
            }
            let Ok(namespace) = RemoteNamespace::new(association, nsid) else {
                continue;
            };
            let Ok(channel) = namespace.open_remote(cx.driver) else {
                // Others have all queues now.
                self.asks_at = cx.now + QUEUE_PATIENCE;
                continue;
            };
            let application = self.waiting.swap_remove(index);
            let mut geometry = namespace.geometry();
            if !application.judged {
                // It may be a lie, and everything that is known of a device is kept in memory.
                geometry.blocks = geometry.blocks.min(UNJUDGED_BLOCKS_MAX);
            }
            let way = Way::Remote(Box::new(channel));
            let client = Client::by(way, geometry, namespace.capabilities(), application);
            self.clients.push(client.noted_in(self.log.clone()));
        }
    }
}

/// Asserts that a controller was live as often as its association was.
fn check_states(controller: &Controller) {
    let association = controller.association();
    let of_controller = controller
        .states_entered()
        .find(|(name, _)| *name == "live");
    let of_association = association
        .phases_entered()
        .find(|(name, _)| *name == "live");
    assert_eq!(of_controller, of_association);
    assert_eq!(of_controller, Some(("live", association.generation())));
}

impl Service for HostCore {
    type Message = ();

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let controller = self.controllers.iter_mut().find(|c| c.owns(op_namespace));
        if let Some(controller) = controller {
            return controller.complete(completion, cx);
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
        for (target, controller) in self.controllers.iter_mut().enumerate() {
            controller.tick(cx);
            let association = controller.association();
            if let Some(provoked) = self.provoked.filter(|_| !self.closing) {
                provoked.check(association);
            }
            let generation = association.generation();
            if std::mem::replace(&mut self.associations[target], generation) != generation {
                let clients = self.clients.iter_mut();
                let concerned = clients.filter(|client| client.target() == target);
                concerned.for_each(Client::is_reconnected);
            }
        }
        if !self.waiting.is_empty() {
            self.start(cx);
        }
        for client in &mut self.clients {
            client.maintain(cx);
            client.check_waits(self.controllers[client.target()].association());
        }
        self.reopen(cx);
        let over = self.waiting.is_empty() && self.clients.iter().all(Service::finished);
        if over && !self.closing {
            self.closing = true;
            self.associations()
                .for_each(|association| association.close());
        }
    }

    fn deadline(&self) -> Time {
        let clients = self.clients.iter().filter(|client| !client.finished());
        let first = clients.map(Service::deadline).min();
        let first = first.unwrap_or(Time::NEVER).min(self.look_at);
        let asks = !self.waiting.is_empty() && self.asks_at > Time::ZERO;
        let first = if asks { first.min(self.asks_at) } else { first };
        let controllers = self.controllers.iter().map(Controller::deadline);
        controllers.fold(first, Time::min)
    }

    fn finished(&self) -> bool {
        let finished = self.closing && self.controllers.iter().all(Controller::closed);
        if finished {
            self.controllers.iter().for_each(check_states);
        }
        finished
    }
}
