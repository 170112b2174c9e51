//! The values of `[api_limits]`.

use super::declare::of_empty;
use crate::limits::{
    API_CONNECTIONS, API_CONNECTIONS_DEFAULT, API_TIME_MS, BODY_MS_DEFAULT, IDLE_MS_DEFAULT,
    REQUEST_MS_DEFAULT,
};
use std::time::Duration;

crate::schema! {
    /// Limits of the clients of the HTTP interface. Unchecked: a value may lie outside of its range.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ApiLimits {
        /// Connections; beyond, the oldest without a request is closed, or else the new one waits.
        pub connections: u64 = number(API_CONNECTIONS_DEFAULT, &API_CONNECTIONS) in API_CONNECTIONS,
        /// Time from the start of a connection to its first request.
        pub request_timeout_ms: u64 = number(REQUEST_MS_DEFAULT, &API_TIME_MS) in API_TIME_MS,
        /// Time for the body of a request.
        pub body_timeout_ms: u64 = number(BODY_MS_DEFAULT, &API_TIME_MS) in API_TIME_MS,
        /// Closes a connection without traffic and without an outstanding answer after this time.
        pub idle_timeout_ms: u64 = number(IDLE_MS_DEFAULT, &API_TIME_MS) in API_TIME_MS,
    }
}

impl Default for ApiLimits {
    fn default() -> Self {
        of_empty()
    }
}

impl ApiLimits {
    /// Returns the most connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        usize::try_from(self.connections).unwrap_or(usize::MAX)
    }

    /// Returns the time for a first request.
    #[must_use]
    pub const fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    /// Returns the time for a body.
    #[must_use]
    pub const fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }

    /// Returns the time without traffic.
    #[must_use]
    pub const fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}
