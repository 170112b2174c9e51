//! This very program in processes of its own: targets and loads for experiments.
//!
//! A process must never outlive the one that started it.

mod configuration;
mod foreign;
mod load;
mod runner;
mod target;

pub use foreign::found;
pub use runner::MachineRunner;
pub(crate) use runner::{WARM_UP, load};
pub use target::{RAM_BYTES, Target, prefill};

use anyhow::{Context as _, Result};
use std::process::Command;

/// This program, to be started again.
pub(crate) fn program() -> Result<Command> {
    let path = std::env::current_exe().context("cannot find this program itself")?;
    Ok(Command::new(path))
}
