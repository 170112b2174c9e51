//! The values of `[api_limits]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{
    API_CONNECTIONS, API_CONNECTIONS_DEFAULT, API_TIME_MS, BODY_MS_DEFAULT, IDLE_MS_DEFAULT,
    REQUEST_MS_DEFAULT,
};

base::with_defaults! {
    /// Limits of the clients of the HTTP interface. Unchecked: a value may lie outside of its range.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ApiLimits {
        /// Connections at one time, in [`API_CONNECTIONS`]. For one more the oldest one without a request
        /// is closed; where all have had one, it waits.
        pub connections: u64 = API_CONNECTIONS_DEFAULT,
        /// Time from the start of a connection to the end of its first request's head, in milliseconds.
        pub request_timeout_ms: u64 = REQUEST_MS_DEFAULT,
        /// Time for the body of a request, in milliseconds.
        pub body_timeout_ms: u64 = BODY_MS_DEFAULT,
        /// Time after which a connection is closed on which nothing moves, and no answer is due, in
        /// milliseconds.
        pub idle_timeout_ms: u64 = IDLE_MS_DEFAULT,
    }
}

impl ApiLimits {
    /// Returns each limit by its key, with its legal values.
    pub fn each(&mut self) -> [(&'static str, &mut u64, RangeInclusive<u64>); 4] {
        [
            ("connections", &mut self.connections, API_CONNECTIONS),
            (
                "request_timeout_ms",
                &mut self.request_timeout_ms,
                API_TIME_MS,
            ),
            ("body_timeout_ms", &mut self.body_timeout_ms, API_TIME_MS),
            ("idle_timeout_ms", &mut self.idle_timeout_ms, API_TIME_MS),
        ]
    }

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
