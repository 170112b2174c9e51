//! A core of a simulated host that runs only a controller. Other cores use its namespaces.

use crate::host_core::Provoked;
use base::Time;
use host::{Association, ConnectOptions, Controller, Phase};
use reactor::{Completion, Context, Driver, Service};
use std::sync::Arc;

/// The production controller for one target.
#[derive(Debug)]
pub(crate) struct Controlling {
    controller: Controller,
    /// Disturbances of its connections that the run provokes; `None` if any may occur.
    provoked: Option<Provoked>,
}

impl Controlling {
    /// Connects with `options`.
    #[must_use]
    pub(crate) fn new(options: ConnectOptions, driver: &mut dyn Driver) -> Self {
        Self {
            controller: Controller::new(Controller::associate(options), driver),
            provoked: None,
        }
    }

    /// Panics from now on at any disturbance that is not `provoked`.
    #[must_use]
    pub(crate) fn expecting(mut self, provoked: Provoked) -> Self {
        self.provoked = Some(provoked);
        self
    }

    /// Returns the association through which other cores reach the target's namespaces.
    #[must_use]
    pub(crate) fn association(&self) -> &Arc<Association> {
        self.controller.association()
    }
}

impl Service for Controlling {
    type Message = ();

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        self.controller.complete(completion, cx);
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.controller.tick(cx);
        let association = self.controller.association();
        if let Some(provoked) = self.provoked
            && association.phase() != Phase::Gone
        {
            provoked.check(association);
        }
    }

    fn deadline(&self) -> Time {
        self.controller.deadline()
    }

    fn finished(&self) -> bool {
        self.controller.closed()
    }
}
