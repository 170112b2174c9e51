//! `switchyard config`: shows, saves, compares and applies configurations.

use crate::args::{ConfigArgs, ConfigCommand};
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result, ensure};
use base::printable;
use config::{Configuration, Difference, differences, files};
use control::client::{self, Interface, Method, ask};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

const PATH: &str = "/v1/config";
const CHANGES_PATH: &str = "/v1/config/changes";
const FILE_PATH: &str = "/v1/config/file";

/// Carries it out.
///
/// # Errors
/// An API that is unreachable or refuses, or a file that cannot be read or written.
pub fn run(args: &ConfigArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    match &args.command {
        ConfigCommand::Show => show(api, output),
        ConfigCommand::Save { file, force } => save(api, file, *force, output),
        ConfigCommand::Diff { file } => diff(api, file.as_deref(), output),
        ConfigCommand::Apply { file } => apply(api, file, output),
    }
}

fn in_force(api: &Interface) -> Result<Configuration> {
    client::read(&ask(api, Method::GET, PATH, None)?)
}

fn show(api: &Interface, output: Output) -> Result<Outcome> {
    let configuration = in_force(api)?;
    if output.json {
        output.result(&configuration, "")?;
    } else {
        print(format_args!("{}", configuration.to_toml()))?;
    }
    Ok(Outcome::Done)
}

fn save(api: &Interface, file: &Path, force: bool, output: Output) -> Result<Outcome> {
    let shown = file.display();
    ensure!(!file.is_dir(), "{shown} is a directory; name a file in it");
    ensure!(
        force || std::fs::symlink_metadata(file).is_err(),
        "{shown} exists; choose another file, or replace it with --force (its comments are lost)"
    );
    let configuration = in_force(api)?;
    files::replace_shared(file, &configuration.to_toml())
        .with_context(|| format!("cannot write {shown}"))?;
    let own = note(api, &configuration)?;
    let which = if own {
        ", the target's configuration file"
    } else {
        ""
    };
    output.result(
        &json!({ "saved": file, "own": own }),
        format_args!("saved to {shown}{which}"),
    )?;
    Ok(Outcome::Done)
}

/// Reports the new content of a file to the target. Returns true if it is the target's
/// configuration file.
fn note(api: &Interface, content: &Configuration) -> Result<bool> {
    let answer = ask(api, Method::POST, FILE_PATH, Some(&json!(content)))
        .context("done, but the target could not be notified of the new file content")?;
    client::read(&answer["noted"])
}

fn diff(api: &Interface, file: Option<&Path>, output: Output) -> Result<Outcome> {
    let changes = match file {
        Some(file) => {
            let file = config::load_waiting(file)?;
            json!(differences(&file, &in_force(api)?))
        }
        None => ask(api, Method::GET, CHANGES_PATH, None)?["changes"].take(),
    };
    let list: Vec<Difference> = client::read(&changes)?;
    let nothing = list.is_empty();
    output.result(&json!({ "changes": changes }), List(&list))?;
    Ok(if nothing {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

fn apply(api: &Interface, file: &Path, output: Output) -> Result<Outcome> {
    let configuration = config::load_waiting(file)?;
    let answer = ask(api, Method::POST, PATH, Some(&json!(configuration)))?;
    note(api, &configuration)?;
    let count = answer["actions"].as_array().map_or(0, Vec::len);
    let shown = file.display();
    let changes = if count == 1 { "change" } else { "changes" };
    output.result(&answer, format_args!("applied {shown}: {count} {changes}"))?;
    Ok(Outcome::Done)
}

/// Differences, as lines.
struct List<'a>(&'a [Difference]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no differences");
        }
        for (number, difference) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&printable(&difference.key))?;
            if difference.needs_restart() {
                f.write_str(" (needs a restart)")?;
            }
            for (mark, value) in [('-', &difference.before), ('+', &difference.after)] {
                if let Some(value) = value {
                    write!(f, "\n  {mark} {}", Plain(value))?;
                }
            }
        }
        Ok(())
    }
}

/// A value on one line.
struct Plain<'a>(&'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(&printable(text)),
            other => write!(f, "{other}"),
        }
    }
}
