//! `switchyard tenant events`: tenants that ask for more than they are promised.

use crate::args::ApiArgs;
use crate::http::ask;
use crate::output::Output;
use anyhow::{Context as _, Result};
use control::snapshot::{TenantEvent, TenantEventKind};
use hyper::Method;
use serde::Deserialize;
use std::fmt;

/// Time for which one request waits for an event, in milliseconds: less than a request may take.
const WAIT_MS: u64 = 20_000;

/// The answer of the interface.
#[derive(Debug, Deserialize)]
struct Events {
    events: Vec<TenantEvent>,
    last: u64,
}

/// Prints the events after the one of this number; with `follow`, those that come, too.
///
/// # Errors
/// An interface that cannot be reached, or an output that cannot be written.
pub fn run(follow: bool, after: u64, api: &ApiArgs, output: Output) -> Result<()> {
    let mut after = after;
    let mut wait_ms = 0;
    loop {
        let path = format!("/v1/events?after={after}&wait_ms={wait_ms}");
        let answer = ask(&api.api, Method::GET, &path, None)?;
        let seen = Events::deserialize(&answer).context("the target's answer is not understood")?;
        if !follow {
            return output.result(&answer, &seen);
        }
        for event in &seen.events {
            output.result(event, Line(event))?;
        }
        after = seen.last;
        wait_ms = WAIT_MS;
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            return f.write_str("no tenant has asked for more than it was promised");
        }
        for (index, event) in self.events.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            Line(event).fmt(f)?;
        }
        Ok(())
    }
}

/// An event, on one line.
struct Line<'a>(&'a TenantEvent);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TenantEvent {
            number,
            tenant,
            device,
            demand,
            ..
        } = self.0;
        match self.0.kind {
            TenantEventKind::OverrunBegan => write!(
                f,
                "{number}: {tenant} asks for more than it is promised on {device}: {} tokens/s \
                 over {} ms, {} promised, {} commands wait",
                demand.asked_milli / 1000,
                demand.window_ms,
                demand.promised_milli / 1000,
                demand.waiting
            ),
            TenantEventKind::OverrunEnded => {
                write!(
                    f,
                    "{number}: {tenant} keeps to its promise on {device} again"
                )
            }
        }
    }
}
