//! The state of a queue's exchange of DH-HMAC-CHAP.

use base::Time;
use secure::KeyRing;
use secure::chap::{ControllerExchange, Names};
use std::sync::Arc;
use wire::fabrics::{Connect, ConnectData};

/// The authentication of a queue in progress.
#[derive(Debug)]
pub(crate) struct Chap {
    pub(crate) exchange: ControllerExchange,
    pub(crate) stage: Stage,
    /// Time by which it has to end, or by which the connection closes after its failure.
    pub(crate) deadline: Time,
    /// Slot of the Authentication Send whose job is not finished.
    pub(crate) computing: Option<u16>,
    /// Slot of the Authentication Receive that waits for the failure's report.
    pub(crate) waiting: Option<u16>,
    /// Earliest time at which a failure is reported.
    pub(crate) reports_at: Time,
}

/// The queue's need of the exchange.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The queue is not live before.
    First(First),
    /// The queue is live.
    Again,
    /// The first exchange has failed, and the connection closes.
    Failed,
}

/// A queue that authenticates for the first time.
#[derive(Debug)]
pub(crate) enum First {
    /// An admin queue, whose controller is reserved.
    Admin,
    /// An I/O queue, with its Connect.
    Io(Box<(Connect, ConnectData)>),
}

impl Chap {
    pub(crate) fn new(names: Names, stage: Stage, keys: Arc<KeyRing>, deadline: Time) -> Box<Self> {
        Box::new(Self {
            exchange: ControllerExchange::new(names, keys),
            stage,
            deadline,
            computing: None,
            waiting: None,
            reports_at: Time::ZERO,
        })
    }

    /// Returns true once the first exchange has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed)
    }

    /// Returns true while a command waits.
    pub(crate) const fn is_busy(&self) -> bool {
        self.computing.is_some() || self.waiting.is_some()
    }
}
