//! The performance model and this machine: calibration of its costs, and validation of its
//! predictions.

mod calibrate;
mod validate;

pub use calibrate::calibrate;
pub use validate::{ValidateArgs, ValidateReport, validate};

use anyhow::{Context as _, Result};
use sim::model::Costs;
use std::path::Path;

/// Returns the costs in a file, or the built-in ones.
///
/// # Errors
/// A file that cannot be read or used.
pub fn costs(file: Option<&Path>) -> Result<Costs> {
    let Some(path) = file else {
        return Ok(Costs::shipped());
    };
    let unusable = || {
        format!(
            "cannot use {}; `lab sim calibrate --output FILE` writes a valid one",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).with_context(unusable)?;
    Costs::from_toml(&text).with_context(unusable)
}
