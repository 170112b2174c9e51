//! Requests that fail for want of a connection, and that others are asked for in the place of.

use super::Client;
use base::{Nanos, Time};
use block::BlockError;
use host::{Association, Phase};

/// Time for which an application asks for nothing after a request that failed for want of a
/// connection: the next one would fail at once.
const PATIENCE: Nanos = Nanos::from_millis(20);

/// A loss of the connection, as an application sees it.
#[derive(Debug)]
pub(super) struct Loss {
    /// Number of associations that were live before.
    generation: u64,
    /// Time at which it was seen.
    since: Time,
}

impl Client {
    /// Returns true if another request is to be asked for in the place of one that ended so. It waits
    /// for a while.
    pub(super) fn asks_anew(&mut self, answer: Result<(), BlockError>) -> bool {
        if self.waits.is_none() || answer != Err(BlockError::Gone) {
            return false;
        }
        self.rests_until = self.rests_until.max(self.now + PATIENCE);
        let anew = !self.tolerance.may_go();
        self.issued -= u64::from(anew);
        anew
    }

    /// Asserts that no request waits for a connection for longer than its host lets it.
    pub(crate) fn check_waits(&mut self, association: &Association) {
        let Some(limit) = self.waits else { return };
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
