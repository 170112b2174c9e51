//! An application's connections: replacement of requests that failed for lack of a connection;
//! lanes that a channel must have; channels that are closed and opened again.

use super::{Client, Way};
use crate::application::{Application, Replacement};
use base::{Nanos, Prng, Time};
use block::BlockError;
use host::{Association, Phase};

/// Pause of an application after a request failed for lack of a connection: the next request would
/// fail immediately.
const PATIENCE: Nanos = Nanos::from_millis(20);

/// A loss of the connection, as an application sees it.
#[derive(Debug)]
pub(super) struct Loss {
    /// Number of live associations before the loss.
    generation: u64,
    /// Time of its detection.
    since: Time,
}

impl Client {
    /// Returns true if the application must replace a request with this result. It then pauses
    /// first.
    pub(super) fn asks_anew(&mut self, answer: Result<(), BlockError>) -> bool {
        if !self.work.asks_anew || answer != Err(BlockError::Gone) {
            return false;
        }
        self.rests_until = self.rests_until.max(self.now + PATIENCE);
        let anew = !self.work.tolerance.may_go();
        self.issued -= u64::from(anew);
        anew
    }

    /// Asserts that no request waits for a connection for longer than its host allows.
    pub(crate) fn check_waits(&mut self, association: &Association) {
        let Some(limit) = self.work.waits else {
            return;
        };
        if association.phase() != Phase::Recovering {
            self.loss = None;
            return;
        }
        let generation = association.generation();
        let loss = self.loss.take();
        let loss = loss.filter(|loss| loss.generation == generation);
        let loss = self.loss.insert(loss.unwrap_or(Loss {
            generation,
            since: self.now,
        }));
        let lost_for = self.now.since(loss.since);
        if lost_for <= limit {
            return;
        }
        for (_, request) in self.in_flight.iter() {
            assert!(
                self.now.since(request.since) <= limit,
                "{:?} of blocks {:?} waits, and there has been no connection for {lost_for}",
                request.kind,
                request.range
            );
        }
    }
}

/// The work for an application's next channel.
#[derive(Debug)]
pub(super) struct Reopening(Box<Application>);

impl Reopening {
    /// Splits off the work for an application's next channel; `None` if there is none.
    pub(super) fn split(application: &mut Application) -> Option<Self> {
        let requests = application.workload.requests;
        let mut prng = Prng::from_seed(application.seed ^ 0x0E09);
        let now = 1 + prng.below(requests / 2 + 1);
        if !application.reopens || !application.judged || now >= requests {
            return None;
        }
        let mut next = application.clone();
        application.workload.requests = now;
        next.workload.requests -= now;
        next.seed = prng.next_u64();
        next.rest = application.rest.filter(|&(after, _)| after >= now);
        next.rest = next.rest.map(|(after, rest)| (after - now, rest));
        Some(Self(Box::new(next)))
    }
}

impl Client {
    /// Takes the work for the next channel after this channel is closed.
    pub(crate) fn take_next(&mut self) -> Option<Application> {
        let closed = self.closing && self.channel.as_ref().closed();
        let next = self.reopening.take_if(|_| closed)?;
        Some(*next.0)
    }

    /// Notes that another volume replaced its namespace: its next channel opens that volume.
    pub(crate) fn is_replaced(&mut self, by: &Replacement<'_>) {
        if let Some(Reopening(next)) = &mut self.reopening {
            next.is_replaced(by);
        }
    }

    /// Returns true if its channel lacks one of its lanes. An application ends only when the
    /// channel has all its lanes, so that a lane that is never opened is detected as a hang.
    pub(super) fn lacks_lane(&self) -> bool {
        match &self.channel {
            Way::Any(_) => false,
            Way::Remote(channel) => channel.lacks_lane(),
        }
    }
}
