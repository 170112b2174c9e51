//! `switchyard attach`: front ends for unmodified applications.

use crate::args::{AttachArgs, load_attachments};
use crate::exit::Outcome;
use crate::output::{Output, human_bytes, print};
use anyhow::{Error, Result, bail};
use config::schema::ApiAddress;
use frontend::attach::{Origin, Ready, Reporter};
use serde_json::json;
use std::sync::Arc;

/// Attaches, and detaches at a signal.
///
/// # Errors
/// A device or target that cannot be opened, or an API address in use.
pub fn run(args: &AttachArgs, output: Output) -> Result<Outcome> {
    let origin = match (&args.kind, &args.config) {
        (Some(command), None) => {
            let wanted = command.wanted().map_err(Error::msg)?;
            Origin::One(Box::new(wanted))
        }
        (None, Some(path)) => Origin::File {
            path: path.clone(),
            read: load_attachments,
            only: args.only.clone(),
        },
        (Some(_), Some(_)) => bail!("--config FILE defines the attachments; omit the kind"),
        (None, None) => bail!("no kind given; use nbd, fuse, vhost, ublk, or --config FILE"),
    };
    let has_file = args.config.is_some();
    let reporter = Arc::new(Teller { output, has_file });
    let orderly = frontend::attach::run(origin, args.api.clone(), args.take_over, reporter)?;
    Ok(Outcome::of(orderly))
}

/// Prints attachments on standard output.
#[derive(Debug)]
struct Teller {
    output: Output,
    has_file: bool,
}

impl Reporter for Teller {
    fn ready(&self, new: Vec<Ready>) -> Result<()> {
        if self.output.json && self.has_file {
            let all = new.into_iter().map(|ready| {
                let mut description = ready.description;
                description["name"] = ready.name.into();
                description
            });
            let line = json!({ "attachments": all.collect::<Vec<_>>() });
            return print(format_args!("{line}\n"));
        }
        for ready in new {
            let name = ready
                .name
                .map_or_else(String::new, |name| format!("{name}: "));
            let lines = ready.ways.into_iter().map(|(way, bytes)| {
                let size = human_bytes(bytes);
                format!("ready: {name}{way}, {size}")
            });
            let lines = lines.collect::<Vec<_>>().join("\n");
            self.output.result(&ready.description, lines)?;
        }
        Ok(())
    }

    fn interface(&self, address: &ApiAddress) -> Result<()> {
        match self.output.json {
            true => Ok(()),
            false => print(format_args!("API at {address}\n")),
        }
    }

    fn note(&self, text: &str) {
        self.output.note(text);
    }
}
