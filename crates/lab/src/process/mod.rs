//! The program `switchyard` in separate processes: targets and loads for experiments.
//!
//! Invariant: no process outlives the one that started it.

mod configuration;
mod foreign;
mod load;
mod runner;
mod target;

pub use foreign::found;
pub use runner::MachineRunner;
pub(crate) use runner::{WARM_UP, load};
pub use target::{RAM_BYTES, Target, prefill};

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// The environment variable with the program's path.
const VARIABLE: &str = "SWITCHYARD_BIN";

/// A command for the program `switchyard`: from the environment, or in the directory of this
/// program.
///
/// # Errors
/// It does not exist.
pub(crate) fn program() -> Result<Command> {
    let given = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = match given {
        Some(path) => PathBuf::from(path),
        None => itself()?.with_file_name("switchyard"),
    };
    ensure!(
        path.is_file(),
        "the program to measure is missing at {}: build it like this program (cargo build \
         --release), or set {VARIABLE} to its path",
        path.display()
    );
    Ok(Command::new(path))
}

/// Returns the path of this program.
pub(crate) fn itself() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program itself")
}
