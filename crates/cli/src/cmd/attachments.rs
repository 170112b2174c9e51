//! `switchyard attachments` and `switchyard detach`: the attachments of a running process.

use crate::args::{AttachmentsArgs, DetachArgs};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use control::attachments::AttachmentsAnswer;
use control::client::{self, Method, ask};
use serde_json::json;

const PATH: &str = "/v1/attachments";

/// Lists them.
///
/// # Errors
/// An interface that cannot be reached, or an output that cannot be written.
pub fn list(args: &AttachmentsArgs, output: Output) -> Result<Outcome> {
    let answer = ask(&args.api.api, Method::GET, PATH, None)?;
    output.result(&answer, client::read::<AttachmentsAnswer>(&answer)?)?;
    Ok(Outcome::Done)
}

/// Detaches one.
///
/// # Errors
/// An interface that cannot be reached, an unknown name, or an attachment in use.
pub fn detach(args: &DetachArgs, output: Output) -> Result<Outcome> {
    let name = &args.name;
    let force = if args.force { "?force=true" } else { "" };
    let path = format!("{PATH}/{}{force}", client::escaped(name));
    ask(&args.api.api, Method::DELETE, &path, None)?;
    output.result(
        &json!({ "detached": name }),
        format_args!("detached {name}"),
    )?;
    Ok(Outcome::Done)
}
