//! Reading a configuration: from TOML or JSON text to a checked [`Configuration`].
//!
//! Reading has two steps. `decode` turns the text's tree into values and refuses wrong types
//! and unknown keys; `check` looks at the values together. Both report problems by the place of
//! the key, and go on, so that a person learns everything that is wrong at once. The same two
//! steps read the bodies of requests.

mod check;
mod decode;
#[cfg(test)]
mod device_tests;
mod node;
mod problem;
mod spot;
#[cfg(test)]
mod tenant_tests;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::files::{read_any, read_regular};
use crate::limits::{CONFIGURATION_BYTES_MAX, PROBLEMS_MAX};
use crate::model::Configuration;

pub(crate) use check::{check, check_api_limits};
pub(crate) use decode::{FromNode, Table, from_table, parsed};
pub(crate) use node::{Node, Value};
pub use problem::{ConfigError, Problem};
pub(crate) use spot::{FoundNode, Problems, Spot};

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

/// Reads what a request's body or a file says; `check` then looks at it as a whole.
pub(crate) fn parse_part<T: FromNode, U>(
    text: &str,
    format: Format,
    check: impl FnOnce(T, &Spot<'_>) -> Option<U>,
) -> Result<U, ConfigError> {
    let root = Node::parse(text, format)?;
    let located = |problems: Problems| ConfigError::located(problems.into_list(), &root, text);
    // One more than is shown tells the reader that there are more.
    let problems = Problems::new(PROBLEMS_MAX + 1);
    let value = T::from_node(&FoundNode::new(&root, problems.root()));
    let Some(value) = value.filter(|_| problems.is_empty()) else {
        return Err(located(problems));
    };
    let problems = Problems::new(usize::MAX);
    let checked = check(value, &problems.root()).filter(|_| problems.is_empty());
    checked.ok_or_else(|| located(problems))
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
    Err(ConfigError::named(problems.into_list(), configuration))
}

pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    explained(path, read_regular(path, CONFIGURATION_BYTES_MAX))
}

/// The same, but for pipes, which it waits for.
pub(crate) fn read_waiting(path: &Path) -> Result<String, ConfigError> {
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
