//! `switchyard tenant events`: tenants that ask for more than they are promised.

use crate::output::Output;
use anyhow::Result;
use control::answers::{EventLine, Events};
use control::client::{self, Method, ask};
use control::model::ApiAddress;

/// Time for which one request waits for an event, in milliseconds: less than a request may take.
const WAIT_MS: u64 = 20_000;

/// Prints the events after the one of this number; with `follow`, those that come, too.
///
/// # Errors
/// An interface that cannot be reached, or an output that cannot be written.
pub fn run(follow: bool, after: u64, api: &ApiAddress, output: Output) -> Result<()> {
    let mut after = after;
    let mut wait_ms = 0;
    loop {
        let path = format!("/v1/events?after={after}&wait_ms={wait_ms}");
        let answer = ask(api, Method::GET, &path, None)?;
        let seen: Events = client::read(&answer)?;
        if !follow {
            return output.result(&answer, &seen);
        }
        for event in &seen.events {
            output.result(event, EventLine(event))?;
        }
        after = seen.last;
        wait_ms = WAIT_MS;
    }
}
