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
#[cfg(test)]
mod tenant_tests;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::files::{read_any, read_regular};
use crate::limits::CONFIGURATION_BYTES_MAX;
use crate::model::Configuration;

pub(crate) use check::{check, check_api_limits};
pub(crate) use decode::{Decoder, FromNode, Table, from_table};
pub(crate) use node::{Node, Value};
pub(crate) use problem::Place;
pub use problem::{ConfigError, Problem};

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
    let mut configuration: Configuration = parse_part(text, format, &Place::root())?.0;
    let problems = check(&configuration);
    if !problems.is_empty() {
        let root = Node::parse(text, format)?;
        return Err(ConfigError::located(problems, &root, text));
    }
    configuration.sort();
    Ok(configuration)
}

/// Reads, without looking at it as a whole, what a request's body or a file says.
pub(crate) fn parse_part<T: FromNode>(
    text: &str,
    format: Format,
    place: &Place,
) -> Result<(T, Node), ConfigError> {
    let root = Node::parse(text, format)?;
    let decoder = Decoder::default();
    let value = T::from_node(&root, place, &decoder);
    let problems = decoder.into_problems();
    match value {
        Some(value) if problems.is_empty() => Ok((value, root)),
        _ => Err(ConfigError::located(problems, &root, text)),
    }
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
    let problems = check(configuration);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ConfigError::named(problems, configuration))
    }
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
