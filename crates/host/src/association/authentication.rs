//! Requests to authenticate again.

use super::{Association, Knowledge, Phase};
use crate::error::ConnectionError;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Association {
    /// Requests that the admin queue authenticates again, and waits for the result, at most
    /// `limit`.
    pub(crate) fn authenticate_again(&self, limit: Duration) -> Result<(), ConnectionError> {
        let generation = self.generation();
        let number = self.request_authentication();
        let end = Instant::now() + limit;
        let mut knowledge = self.lock();
        loop {
            if let Some(result) = knowledge.authentication(number) {
                return result;
            }
            let left = end.saturating_duration_since(Instant::now());
            let is_lost = self.generation() != generation || self.phase() != Phase::Live;
            if is_lost || left.is_zero() {
                let late = ConnectionError::TimedOut {
                    address: knowledge.addresses.current(),
                    what: "authentication",
                    seconds: limit.as_secs(),
                };
                let known = knowledge.error.clone().filter(|_| is_lost);
                return Err(known.unwrap_or(late));
            }
            let waited = self.changed.wait_timeout(knowledge, left);
            knowledge = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Requests that the admin queue authenticates again. Returns the number of the request.
    pub fn request_authentication(&self) -> u64 {
        let number = self.authentications.fetch_add(1, Ordering::SeqCst) + 1;
        self.announce();
        number
    }

    /// Returns the result of a request to authenticate again, once there is one.
    #[must_use]
    pub fn authentication(&self, number: u64) -> Option<Result<(), ConnectionError>> {
        self.lock().authentication(number)
    }

    /// Returns the number of requests to authenticate again.
    pub(crate) fn authentications(&self) -> u64 {
        self.authentications.load(Ordering::Relaxed)
    }

    /// Stores the answer to a request to authenticate again.
    pub(crate) fn note_authenticated(&self, number: u64, error: Option<ConnectionError>) {
        self.lock().authenticated = (number, error);
        self.announce();
    }
}

impl Knowledge {
    /// Returns the result of a request to authenticate again, once there is one.
    fn authentication(&self, number: u64) -> Option<Result<(), ConnectionError>> {
        let (answered, error) = &self.authenticated;
        (*answered >= number).then(|| error.clone().map_or(Ok(()), Err))
    }
}
