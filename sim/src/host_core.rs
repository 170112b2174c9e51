//! A core of a simulated host: a controller, and an application on one of its namespaces.

use crate::client::{Client, ReadLog, Report, Workload};
use block::Device;
use host::{Association, ConnectOptions, Controller, Phase, RemoteNamespace};
use reactor::{Completion, Context, Driver, Service};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The production host, with the checking application on top of it.
#[derive(Debug)]
pub struct HostCore {
    controller: Controller,
    client: Option<Client>,
    workload: Workload,
    seed: u64,
    report: Rc<RefCell<Report>>,
    log: Option<ReadLog>,
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
        Self {
            controller: Controller::new(Controller::associate(options), driver),
            client: None,
            workload,
            seed,
            report: Rc::default(),
            log: None,
            closing: false,
        }
    }

    /// The same host; each read of its application is noted in `log`.
    #[must_use]
    pub fn noted_in(mut self, log: ReadLog) -> Self {
        self.log = Some(log);
        self
    }

    /// What came of the work so far; shared with the running host.
    #[must_use]
    pub fn report(&self) -> Rc<RefCell<Report>> {
        Rc::clone(&self.report)
    }

    /// The association that the work goes through.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        self.controller.association()
    }

    /// Opens the namespace as soon as there is one.
    fn start(&mut self, cx: &mut Context<'_>) {
        if self.association().phase() != Phase::Live {
            return;
        }
        let Ok(namespace) = RemoteNamespace::new(self.association(), 1) else {
            return;
        };
        let geometry = namespace.geometry();
        let channel = namespace.open(cx.driver).expect("the association is live");
        let report = Rc::clone(&self.report);
        let client = Client::new(channel, geometry, self.workload, self.seed, report);
        self.client = Some(client.noted_in(self.log.clone()));
    }
}

impl Service for HostCore {
    type Message = ();

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        if self.controller.owns(completion.key.room) {
            return self.controller.complete(completion, cx);
        }
        let client = self
            .client
            .as_mut()
            .expect("only the channel has other operations");
        client.apply(completion, cx);
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.controller.tick(cx);
        match &mut self.client {
            None => self.start(cx),
            Some(client) => {
                client.maintain(cx);
                if client.finished() && !self.closing {
                    self.closing = true;
                    self.association().close();
                }
            }
        }
    }

    fn deadline(&self) -> base::Time {
        let client = self.client.as_ref().filter(|client| !client.finished());
        let client = client.map_or(base::Time::NEVER, Service::deadline);
        client.min(self.controller.deadline())
    }

    fn finished(&self) -> bool {
        self.closing && self.controller.closed()
    }
}
