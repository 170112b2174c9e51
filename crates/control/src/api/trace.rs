//! `/v1/trace`: selected I/O commands, as they end, with the time in each stage.
//!
//! The answer has no end of its own: one JSON object per line, a [`TraceLine`]. The trace ends when
//! the client closes the connection or the target ends; nothing of it stays.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::Trace;
use target::limits::TRACE_RECORDS;
use target::trace::{TraceFilter, TraceRecord, commands};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::error::ApiError;
use super::state::ApiState;
use super::subsystems;
use super::tenants;
use crate::control::Control;
use crate::limits::{TRACE_LINE_PERIOD, TRACE_LOOK};

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TraceLine {
    /// A command that has ended.
    Record(TraceRecord),
    /// Number of selected commands so far whose records were dropped because the client did not read
    /// in time. The first line, and one at least every second.
    Lost {
        /// The number.
        lost: u64,
    },
}

pub(super) fn routes() -> Router<ApiState> {
    Router::new().route("/v1/trace", get(trace))
}

/// The query: commands that match every part of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    tenant: Option<String>,
    host: Option<String>,
    nqn: Option<String>,
    nsid: Option<u32>,
    /// Name of the command.
    opcode: Option<String>,
    /// Shortest total time, in nanoseconds.
    #[serde(default)]
    slower_than_ns: u64,
    /// Also one in this number of the faster commands.
    sample: Option<NonZeroU32>,
}

async fn trace(
    State(state): State<ApiState>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(wanted) = query.map_err(|error| {
        ApiError::bad_request(
            error.body_text(),
            "write ?tenant=NAME&host=NQN&nqn=NQN&nsid=N&opcode=NAME&slower_than_ns=N&sample=N, or \
             a part of it",
        )
    })?;
    let filter = wanted.filter(&state)?;
    let trace = state.ask(move |control| control.plane().trace(filter));
    let lines = Lines::new(trace.await??, state.control);
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((content_type, Body::new(lines)).into_response())
}

impl Wanted {
    /// Returns the filter. Names that there are not are errors: no command would match them.
    fn filter(self, state: &ApiState) -> Result<TraceFilter, ApiError> {
        let configuration = state.configuration();
        if let Some(tenant) = &self.tenant {
            tenants::find(&configuration, tenant)?;
        }
        if let Some(nqn) = &self.nqn {
            subsystems::find(&configuration, nqn)?;
        }
        if self.nsid.is_some() && self.nqn.is_none() {
            let error = "a namespace is one of a subsystem, and nqn is missing";
            return Err(ApiError::bad_request(error, "write ?nqn=NQN&nsid=N"));
        }
        let opcode = self.opcode.as_deref().map(opcode).transpose()?;
        Ok(TraceFilter {
            tenant: self.tenant,
            host: self.host,
            nqn: self.nqn,
            nsid: self.nsid,
            opcode,
            slower_than: base::Nanos(self.slower_than_ns),
            sample: self.sample,
        })
    }
}

fn opcode(command: &str) -> Result<u8, ApiError> {
    let found = commands().find(|(_, name)| name == command);
    found.map(|(opcode, _)| opcode).ok_or_else(|| {
        let names: Vec<_> = commands().map(|(_, name)| name).collect();
        ApiError::bad_request(
            format!("there is no command {command:?}"),
            format!("name one of {}", names.join(", ")),
        )
    })
}

/// The lines of a trace. The trace ends with them.
struct Lines {
    trace: Trace,
    control: Arc<Control>,
    look: Interval,
    /// Time and number of the last count of lost records.
    last: Option<(Instant, u64)>,
}

impl Lines {
    fn new(trace: Trace, control: Arc<Control>) -> Self {
        let mut look = interval(TRACE_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            trace,
            control,
            look,
            last: None,
        }
    }

    /// Returns the lines that are due.
    fn take(&mut self, now: Instant) -> Vec<u8> {
        let records = self.trace.take(TRACE_RECORDS, unix_ns_of_monotonic_zero());
        let lost = self.trace.lost();
        let is_due = self
            .last
            .is_none_or(|(last, before)| now - last >= TRACE_LINE_PERIOD || lost != before);
        if is_due {
            self.last = Some((now, lost));
        }
        // Before the records: a client may have enough of those.
        let count = is_due.then_some(TraceLine::Lost { lost });
        let lines = records.into_iter().map(TraceLine::Record);
        let mut text = Vec::new();
        for line in count.into_iter().chain(lines) {
            serde_json::to_writer(&mut text, &line).expect("a record has a form in JSON");
            text.push(b'\n');
        }
        text
    }
}

/// Returns the time at which the monotonic clock was zero, in nanoseconds since 1970.
fn unix_ns_of_monotonic_zero() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the time of commands, for people"
    )]
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix = unix.unwrap_or(Duration::ZERO).as_nanos();
    let unix = u64::try_from(unix).unwrap_or(u64::MAX);
    unix.saturating_sub(reactor::clock::monotonic().0)
}

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            let now = ready!(self.look.poll_tick(context));
            // A target that ends does not wait for its clients.
            if self.control.is_draining() {
                return Poll::Ready(None);
            }
            let text = self.take(now);
            if !text.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
        }
    }
}
