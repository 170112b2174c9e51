//! The configuration of a target: its types, read from TOML or JSON, checked, compared, merged.
//!
//! Everything configured is declared once, in [`mod@schema`]. Reading has two steps: `decode` turns the
//! text's tree into values and refuses wrong types and unknown keys; `check` compares values with
//! each other. Both report problems by the place of the key and continue, so that one run shows all
//! problems. Request bodies are read by the same two steps. [`diff()`] turns two configurations into
//! [`Action`]s, and [`merge`] combines the changes of a file and of the HTTP interface. Apart from
//! reading files, nothing here does I/O.

pub mod action;
mod check;
mod decode;
pub mod device_model;
pub mod diff;
mod error;
pub mod files;
pub mod limits;
pub mod merge;
mod node;
mod problem;
pub mod provenance;
pub mod reference;
pub mod schema;
mod spot;
mod suggest;
mod table;
#[cfg(test)]
mod tests;

pub use action::Action;
pub use device_model::DeviceModel;
pub use diff::{Fixed, FixedWhileRunning, build, diff};
pub use error::{ApplyError, ApplyErrorKind, with_causes};
pub use merge::{Contradiction, Difference, differences};
pub use node::{Node, Value};
pub use problem::{ConfigError, Problem};
pub use schema::{Configuration, Size};
pub use spot::{FoundNode, Spot};
pub use suggest::nearest;
pub use table::{FromNode, Keys, Table, read_table};

use check::check;
use files::{read_any, read_regular};
use limits::{CONFIGURATION_BYTES_MAX, PROBLEMS_MAX};
use problem::{Place, PlaceStep};
use spot::Problems;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The languages a configuration is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// JSON, with the same keys.
    Json,
}

/// Reads and checks a configuration.
///
/// # Errors
/// Every problem found, with line and key; without a file's name, which
/// [`ConfigError::in_file`] adds.
pub fn parse(text: &str, format: Format) -> Result<Configuration, ConfigError> {
    parse_part(text, format, |mut configuration: Configuration, root| {
        check(&configuration, root);
        configuration.sort();
        Some(configuration)
    })
}

/// Reads the body of a request or the text of a file; `check` then checks the whole.
///
/// # Errors
/// Every problem found, with line and key.
pub fn parse_part<T: FromNode, U>(
    text: &str,
    format: Format,
    check: impl FnOnce(T, &Spot<'_>) -> Option<U>,
) -> Result<U, ConfigError> {
    let root = Node::parse(text, format)?;
    // One more than is shown tells the reader that there are more.
    let reading = Problems::new(PROBLEMS_MAX + 1);
    let value = T::from_node(&FoundNode::new(&root, reading.root()));
    // A problem of one key is no reason to leave the others unchecked.
    let checking = Problems::new(usize::MAX);
    let checked = value.and_then(|value| check(value, &checking.root()));
    let problems = [reading.into_list(), checking.into_list()].concat();
    let checked = checked.filter(|_| problems.is_empty());
    checked.ok_or_else(|| ConfigError::located(problems, &root, text))
}

/// Reads and checks the TOML file at `path`. Never waits for another process: a pipe is refused.
///
/// # Errors
/// Every problem found, with file, line and key; or why the file cannot be read.
pub fn load(path: &Path) -> Result<Configuration, ConfigError> {
    parse(&read(path)?, Format::Toml).map_err(|error| error.in_file(path))
}

/// The same for a process that holds nothing up yet: it waits for what another one writes to a pipe.
///
/// # Errors
/// As [`load`], but for pipes.
pub fn load_waiting(path: &Path) -> Result<Configuration, ConfigError> {
    parse(&read_waiting(path)?, Format::Toml).map_err(|error| error.in_file(path))
}

/// Checks a configuration that was built rather than read.
///
/// # Errors
/// Every problem found, with the key it would have in a file.
pub fn validate(configuration: &Configuration) -> Result<(), ConfigError> {
    let problems = Problems::new(usize::MAX);
    check(configuration, &problems.root());
    if problems.is_empty() {
        return Ok(());
    }
    let mut problems = problems.into_list();
    for problem in &mut problems {
        problem.key = named(&problem.place, configuration);
    }
    Err(ConfigError::unlocated(problems))
}

/// Returns a place in words, with the names of tenants, subsystems and namespaces instead of their
/// indices: no person wrote the lists of a built configuration in this order.
fn named(place: &Place, configuration: &Configuration) -> String {
    let mut steps = place.steps.clone();
    let subsystem = match place.steps[..] {
        [_, PlaceStep::Index(index), ..] => configuration.subsystems.get(index),
        _ => None,
    };
    for number in 1..steps.len() {
        let (PlaceStep::Key(list), &PlaceStep::Index(index)) = (&steps[number - 1], &steps[number])
        else {
            continue;
        };
        let name = match (number, list.as_str()) {
            (1, "tenants") => configuration.tenants.get(index).map(|it| it.name.clone()),
            (1, "hosts") => configuration.hosts.get(index).map(|it| it.nqn.clone()),
            (1, "subsystems") => subsystem.map(|it| it.nqn.clone()),
            (3, "namespaces") => subsystem
                .and_then(|it| it.namespaces.get(index))
                .map(|it| it.nsid.to_string()),
            _ => None,
        };
        if let Some(name) = name {
            steps[number] = PlaceStep::Key(name);
        }
    }
    Place { steps }.to_string()
}

/// Checks values that were read from flags.
///
/// # Errors
/// Every problem found, with the flag of its key.
pub fn check_flags(check: impl FnOnce(&Spot<'_>)) -> Result<(), String> {
    let problems = Problems::new(usize::MAX);
    check(&problems.root());
    let problems = problems.into_list();
    if problems.is_empty() {
        return Ok(());
    }
    let lines = problems.iter().map(|problem| {
        let flag = match problem.key.replace('_', "-") {
            key if key.is_empty() => "this".to_owned(),
            key => format!("--{key}:"),
        };
        format!("{flag} {}; {}", problem.error, problem.what_to_do)
    });
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// Reads the text of a regular file for a process that runs. A file that is written in place is empty
/// for a moment, and would remove everything from this process: an empty one is refused.
///
/// # Errors
/// The reason, and the remedy.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    let text = explained(path, read_regular(path, CONFIGURATION_BYTES_MAX))?;
    if text.is_empty() {
        let problem = Problem::of_file(
            "is empty",
            "if it is being written, try again afterwards; to remove everything, write a comment",
        );
        return Err(ConfigError::single(problem).in_file(path));
    }
    Ok(text)
}

/// The same for any file; for a pipe it waits until its writer has closed it.
///
/// # Errors
/// As [`read`].
pub fn read_waiting(path: &Path) -> Result<String, ConfigError> {
    explained(path, read_any(path, CONFIGURATION_BYTES_MAX))
}

fn explained(path: &Path, text: io::Result<String>) -> Result<String, ConfigError> {
    text.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::NotFound => "name a file that is there",
            ErrorKind::PermissionDenied => "make the file readable for this user",
            ErrorKind::InvalidData | ErrorKind::IsADirectory => {
                "name a regular file: a configuration, written in TOML"
            }
            ErrorKind::FileTooLarge => "shorten it, or name another file",
            _ => "check the path",
        };
        let problem = Problem::of_file(format!("cannot be read: {error}"), remedy);
        ConfigError::single(problem).in_file(path)
    })
}
