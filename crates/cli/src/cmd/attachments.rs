//! `switchyard attachments` and `switchyard detach`: the attachments of a running process.

use crate::args::{AttachmentsArgs, DetachArgs};
use crate::exit::Outcome;
use crate::output::Output;
use crate::tables::Shown;
use anyhow::Result;
use control::client::{self, Method, ask};
use frontend::attach::{AttachmentSnapshot, AttachmentsAnswer};
use serde_json::json;

const PATH: &str = "/v1/attachments";

/// Lists the attachments.
///
/// # Errors
/// An API that is unreachable, or output that cannot be written.
pub fn list(args: &AttachmentsArgs, output: Output) -> Result<Outcome> {
    let answer = ask(&args.api.interface(), Method::GET, PATH, None)?;
    let all = client::read::<AttachmentsAnswer>(&answer)?;
    let reason = |attachment: &AttachmentSnapshot| {
        let error = attachment.error.as_ref()?;
        let line = format!("{}: {error}", attachment.name);
        Some(format!("\n{}", line.replace(char::is_control, "?")))
    };
    let reasons: String = all.attachments.iter().filter_map(reason).collect();
    output.result(&answer, format_args!("{}{reasons}", Shown(&all)))?;
    Ok(Outcome::Done)
}

/// Detaches an attachment.
///
/// # Errors
/// An API that is unreachable, an unknown name, or an attachment in use.
pub fn detach(args: &DetachArgs, output: Output) -> Result<Outcome> {
    let name = &args.name;
    let force = if args.force { "?force=true" } else { "" };
    let path = format!("{PATH}/{}{force}", client::escaped(name));
    ask(&args.api.interface(), Method::DELETE, &path, None)?;
    output.result(
        &json!({ "detached": name }),
        format_args!("detached {name}"),
    )?;
    Ok(Outcome::Done)
}
