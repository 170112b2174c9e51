//! A simulation from its start to its report.

use super::build;
use super::config::{Config, ConfigError};
use super::costs::Costs;
use super::report::ModelReport;

/// Runs a simulation to its end: the warm-up, the measured time, and then until every request has
/// been completed.
///
/// # Errors
/// A configuration that can not be.
pub fn simulate(config: &Config, costs: &Costs) -> Result<ModelReport, ConfigError> {
    config.validate()?;
    Ok(build::world(config, costs).run())
}
