//! `/v1/events`: events of tenants and refused hosts, also as a long poll.
//!
//! `?after=N` omits event N and all before it; `?wait_ms=M` lets a request without a new event wait
//! for one, for at most so long (a long poll). The target keeps a bounded number of events; a
//! client that asks again with `after` set to `last` misses none while it asks often enough, and
//! sees by the numbers if one was dropped.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::error::ApiError;
use super::state::ApiState;
use crate::limits::{EVENTS_LOOK, EVENTS_WAIT_MS_MAX};
use crate::snapshot::TargetEvent;

/// Events after the one that the request named.
#[derive(Debug, Serialize, Deserialize)]
pub struct Events {
    /// The events, in the order of their numbers.
    pub events: Vec<TargetEvent>,
    /// The number of the last one; without events the number that was named.
    pub last: u64,
}

pub(super) fn routes() -> Router<ApiState> {
    Router::new().route("/v1/events", get(events))
}

async fn events(
    State(state): State<ApiState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Events>, ApiError> {
    let Wanted { after, wait } = Wanted::parse(query.as_deref().unwrap_or_default())?;
    let mut until = Instant::now() + wait;
    loop {
        let ask = state.ask(move |control| control.plane().events(after));
        let events = ask.await?;
        if !events.is_empty() || Instant::now() >= until {
            let last = events.last().map_or(after, |event| event.number);
            return Ok(Json(Events { events, last }));
        }
        // Nothing keeps a target that ends; a client that asks again at once still waits between
        // its requests.
        if state.control.is_draining() {
            until = until.min(Instant::now() + EVENTS_LOOK);
        }
        tokio::time::sleep(EVENTS_LOOK.min(until - Instant::now())).await;
    }
}

/// The query of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    after: u64,
    wait: Duration,
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut wanted = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let number = part.split_once('=').and_then(|(key, value)| {
                let number = value.parse::<u64>().ok()?;
                Some((key, number))
            });
            match number {
                Some(("after", after)) => wanted.after = after,
                Some(("wait_ms", wait)) if wait <= EVENTS_WAIT_MS_MAX => {
                    wanted.wait = Duration::from_millis(wait);
                }
                _ => {
                    return Err(ApiError::bad_request(
                        format!("{part:?} in the query is not understood"),
                        format!("write ?after=NUMBER&wait_ms=0 to {EVENTS_WAIT_MS_MAX}"),
                    ));
                }
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_number_and_a_time() {
        let wanted = |query| Wanted::parse(query).ok();
        assert_eq!(wanted(""), Some(Wanted::default()));
        let both = Wanted {
            after: 7,
            wait: Duration::from_millis(20),
        };
        assert_eq!(wanted("wait_ms=20&after=7"), Some(both));
        for bad in ["after", "after=-1", "wait_ms=60001", "since=3"] {
            assert_eq!(wanted(bad), None, "{bad}");
        }
    }
}
