//! Clients of the interface: their limits, and how often each limit held one of them back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::sync::Semaphore;

use crate::credentials::Credentials;
use crate::snapshot::{LimitedSnapshot, Snapshot, UsageSnapshot};
use config::schema::ApiLimits;

/// A limit of clients: a key of `[api_limits]`, or the size of a body, which is fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientLimit {
    /// One more connection closed the oldest one without a request, or waited.
    Connections,
    /// A connection was closed without a request.
    RequestTimeout,
    /// A body did not arrive in time.
    BodyTimeout,
    /// A connection was closed on which nothing moved.
    IdleTimeout,
    /// A body was too large.
    BodyBytes,
}

/// The names of the limits in metrics, in order.
const NAMES: [&str; 5] = [
    "api_connections",
    "api_request_timeout_ms",
    "api_body_timeout_ms",
    "api_idle_timeout_ms",
    "api_body_bytes",
];

/// The clients of one interface.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) limits: ApiLimits,
    /// The credentials of an interface over TCP.
    credentials: Option<Arc<Credentials>>,
    /// Room for connections.
    pub(crate) room: Arc<Semaphore>,
    held_back: [AtomicU64; NAMES.len()],
}

impl Clients {
    pub(crate) fn new(limits: ApiLimits, credentials: Option<Arc<Credentials>>) -> Self {
        Self {
            limits,
            credentials,
            room: Arc::new(Semaphore::new(limits.connections())),
            held_back: Default::default(),
        }
    }

    /// Counts a client that a limit held back.
    pub(crate) fn count(&self, limit: ClientLimit) {
        self.held_back[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the use of the limits, the number of clients that each held back, and the certificate's end.
    fn tell(&self, snapshot: &mut Snapshot) {
        let credentials = self.credentials.as_ref();
        snapshot.api_certificate_expiry_s = credentials.and_then(|it| it.current().expiry());
        let max = self.limits.connections;
        snapshot.usage.push(UsageSnapshot {
            limit: NAMES[0].to_owned(),
            core: None,
            used: max.saturating_sub(self.room.available_permits() as u64),
            max,
        });
        let counts = NAMES.iter().zip(&self.held_back);
        let limited = counts.map(|(limit, count)| LimitedSnapshot {
            limit: (*limit).to_owned(),
            count: count.load(Ordering::Relaxed),
        });
        snapshot.limited.extend(limited);
    }
}

/// The clients of the interface that a request came to.
#[derive(Debug)]
pub struct OfClients(pub(super) Arc<Clients>);

impl OfClients {
    /// Adds the use of the interface's limits, and the number of clients that each held back.
    pub fn tell(&self, snapshot: &mut Snapshot) {
        self.0.tell(snapshot);
    }
}

impl<S: Sync> FromRequestParts<S> for OfClients {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let clients = parts.extensions.get::<Arc<Clients>>().cloned();
        Ok(Self(clients.unwrap_or_else(|| {
            Arc::new(Clients::new(ApiLimits::default(), None))
        })))
    }
}
