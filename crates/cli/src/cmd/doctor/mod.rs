//! `switchyard doctor`: checks the machine, the configuration and the running target.
//!
//! Each check returns findings. A fact that cannot be read, as in a container, is `Unknown` with the
//! reason, never a failure.

mod devices;
mod finding;
mod kernel;
mod keys;
mod network;
mod processors;
mod system;
mod target;

pub use finding::Findings;
pub use target::Examined;

use crate::args::{DoctorArgs, ExaminedArgs};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use config::Configuration;
use std::path::{Path, PathBuf};
use system::System;

/// Prints the findings.
///
/// # Errors
/// Standard output that cannot be written.
pub fn run(args: &DoctorArgs, output: Output) -> Result<Outcome> {
    let found = findings(&args.examined, &Examined::find(&args.examined));
    output.result(&found, &found)?;
    Ok(Outcome::of(!found.has_failures()))
}

/// Returns the paths of the files with secrets of a configuration, which was read from `file`.
pub fn secret_files(configuration: &Configuration, file: Option<&Path>) -> Vec<PathBuf> {
    let files = keys::files(configuration, file).into_iter();
    files.map(|(path, _)| path).collect()
}

/// Carries out all checks.
pub fn findings(args: &ExaminedArgs, examined: &Examined) -> Findings {
    let system = &System::new("/");
    let configuration = examined.configurations().next();
    let pid = examined.pid;
    let mut found = kernel::check(system, pid, configuration);
    found.extend(processors::check(system, pid, configuration));
    found.extend(network::check(system, configuration));
    found.extend(examined.check_configuration());
    if let Some(configuration) = configuration {
        found.push(target::check_timeouts(configuration));
        found.extend(keys::check(configuration, examined.file.as_deref()));
        found.extend(devices::check(system, configuration, pid));
    }
    found.push(examined.check_api());
    if let Some(configuration) = configuration {
        found.extend(target::check_addresses(configuration, args));
    }
    Findings(found)
}
