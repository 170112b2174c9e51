//! A core of a simulated host: controllers, with applications on their namespaces.

use crate::application::{Application, ApplicationReport, Replacement, Workload};
use crate::client::{Client, ReadLog, Way};
use base::{Nanos, Time};
use block::Device;
use host::{Association, ConnectOptions, ConnectionError, Controller, Phase, RemoteNamespace};
use reactor::{Completion, Context, Driver, Service};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Interval of an application's attempts to open another channel.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// The same interval if the controller had no free I/O queue: other applications hold their queues
/// until their work is complete.
pub(crate) const QUEUE_PATIENCE: Nanos = Nanos::from_millis(50);

/// Maximum blocks that an application without checks uses.
const UNJUDGED_BLOCKS_MAX: u64 = 4096;

/// Disturbances of connections that a run provokes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provoked {
    /// Connections may be lost.
    pub losses: bool,
    /// Violations of the protocol may arrive.
    pub violations: bool,
    /// Applications time out or cancel requests, which may cost connections.
    pub given_up: bool,
}

impl Provoked {
    /// Asserts that no peer that follows the protocol is reported for a violation, and that no
    /// undisturbed connection is lost.
    ///
    /// # Panics
    /// If either assertion fails.
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
            // A fence of the lost association is overdue before a new association is live.
            Some(ConnectionError::TimedOut { what, .. }) => what.starts_with("End Controller"),
            _ => false,
        };
        assert!(
            self.losses || (self.given_up && given_up) || association.phase() == Phase::Connecting,
            "a host lost its connections, and nothing provokes that: {}",
            error.as_ref().map_or_else(String::new, ToString::to_string)
        );
    }
}

/// The production host, with checking applications, each on its own channel.
#[derive(Debug)]
pub struct HostCore {
    /// One controller per target.
    controllers: Vec<Controller>,
    /// Applications without a channel.
    waiting: Vec<Application>,
    clients: Vec<Client>,
    report: Rc<RefCell<ApplicationReport>>,
    log: Option<ReadLog>,
    /// Disturbances of its connections that the run provokes; `None` if any may occur.
    provoked: Option<Provoked>,
    /// Live associations with each target, as of the last turn.
    associations: Vec<u64>,
    /// Time of the next attempt to open channels for waiting applications.
    look_at: Time,
    /// Time before which no application requests an I/O queue, because all queues are in use.
    asks_at: Time,
    closing: bool,
}

impl HostCore {
    /// A host that connects with `options`, then works on namespace 1.
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

    /// A host that connects to each target with that target's `options`, and runs these
    /// applications.
    ///
    /// # Panics
    /// If there are no applications.
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

    /// Logs each read of its applications in `log`.
    #[must_use]
    pub fn noted_in(mut self, log: ReadLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Panics from now on if its connections meet a disturbance that is not `provoked`.
    #[must_use]
    pub fn expecting(mut self, provoked: Provoked) -> Self {
        self.provoked = Some(provoked);
        self
    }

    /// Notes that another volume replaced a namespace: applications that have not opened the
    /// namespace yet will open the new volume.
    pub(crate) fn is_replaced(&mut self, by: &Replacement<'_>) {
        let waiting = self.waiting.iter_mut();
        waiting.for_each(|application| application.is_replaced(by));
        let clients = self.clients.iter_mut();
        clients.for_each(|client| client.is_replaced(by));
    }

    /// Returns the results of the first application so far, shared with the running host.
    #[must_use]
    pub fn report(&self) -> Rc<RefCell<ApplicationReport>> {
        Rc::clone(&self.report)
    }

    /// Returns true after its applications have ended.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns the association with the first target.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        self.controllers[0].association()
    }

    /// Returns the associations with all targets.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Association>> {
        self.controllers.iter().map(Controller::association)
    }

    /// Stops new requests of its applications, and lets these end.
    pub(crate) fn leave(&mut self) {
        self.waiting.clear();
        self.clients.iter_mut().for_each(Client::leave);
    }

    /// Opens new channels for applications that have closed theirs. Applications that have ended
    /// free their queues.
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

    /// Opens the namespaces of waiting applications as soon as they are available.
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
                // All I/O queues are in use.
                self.asks_at = cx.now + QUEUE_PATIENCE;
                continue;
            };
            let application = self.waiting.swap_remove(index);
            let mut geometry = namespace.geometry();
            if !application.judged {
                // The size may be false, and the model of a device is kept in memory.
                geometry.blocks = geometry.blocks.min(UNJUDGED_BLOCKS_MAX);
            }
            let way = Way::Remote(Box::new(channel));
            let client = Client::by(way, geometry, namespace.capabilities(), application);
            self.clients.push(client.noted_in(self.log.clone()));
        }
    }
}

/// Asserts that the controller was live as often as its association.
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
