//! The performance model: the stack on machines with more cores than there are.
//!
//! [`simulate`] runs a [`Config`] in virtual time on modelled machines, each step at a price from a
//! [`Costs`] file. The rules of the production crate [`switch`] decide the order of classes, the
//! core by which a request leaves, and the size and the time of a caravan. The turns of the loops
//! that ask these rules are the model's own (`engine`, `app`): they follow the production loops, and
//! differ from them where `docs/results/model.md` says so. Cores with a fair scheduler and priorities
//! (`cpu`), lanes and links (`lane`) stand for a machine and its kernel. Apart from the simulated
//! world of this crate, which runs the whole stack and looks for faults, this one moves no bytes
//! and looks at time.
//!
//! One seed is one run. Must never: decide something that the switch decides, or read a clock. The
//! limits of the model and its validation: `docs/results/model.md`.

mod app;
mod build;
mod caches;
pub mod config;
pub mod costs;
mod cpu;
mod engine;
mod event;
pub mod figures;
mod lane;
mod random;
pub mod report;
mod steering;
mod world;

#[cfg(test)]
mod tests;

pub use config::{AppSpec, Config, ConfigError, Hosting, Link, Topology, Turn};
pub use costs::{Costs, CostsError};
pub(crate) use random::Random;
pub use report::ModelReport;

/// Runs a simulation to its end: the warm-up, the measured time, and then until every request has
/// been completed.
///
/// # Errors
/// A configuration that can not be.
pub fn simulate(config: &Config, costs: &Costs) -> Result<ModelReport, ConfigError> {
    config.validate()?;
    Ok(build::world(config, costs).run())
}
