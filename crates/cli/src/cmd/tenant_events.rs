//! `switchyard tenant events`: tenants that exceed the rate of their SLO.

use crate::output::Output;
use crate::tables::Shown;
use anyhow::Result;
use control::api::Events;
use control::client::{self, Interface, Method, ask};

/// Time that a request waits for an event, in milliseconds; less than the request timeout.
const WAIT_MS: u64 = 20_000;

/// Prints the events after event number `after`; with `follow`, also new ones.
///
/// # Errors
/// An API that is unreachable, or output that cannot be written.
pub fn run(follow: bool, after: u64, api: &Interface, output: Output) -> Result<()> {
    let mut after = after;
    let mut wait_ms = 0;
    loop {
        let path = format!("/v1/events?after={after}&wait_ms={wait_ms}");
        let answer = ask(api, Method::GET, &path, None)?;
        let seen: Events = client::read(&answer)?;
        if !follow {
            return output.result(&answer, Shown(&seen));
        }
        for event in &seen.events {
            output.result(event, Shown(event))?;
        }
        after = seen.last;
        wait_ms = WAIT_MS;
    }
}
