//! The performance model: the stack on simulated machines with any number of cores.
//!
//! [`simulate`] runs a [`Config`] in virtual time; each step has a cost from a [`Costs`] file. The
//! production crate [`switch`] decides the order of classes, the core through which a request
//! leaves, and the size and time of a caravan. The loops that call it (`engine`, `app`) are the
//! model's own: they follow the production loops, with differences listed in
//! `docs/results/model.md`. `cpu` models cores with a fair scheduler and priorities, `lane` models
//! lanes and links. In contrast to the simulated world of this crate, which runs the whole stack to
//! find bugs, the model moves no data and measures time.
//!
//! Runs are deterministic by seed. The model must not decide anything that the switch decides, nor
//! read a clock. Its limits and validation: `docs/results/model.md`.

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

/// Runs a simulation: the warm-up, the measured time, and then until every request has completed.
///
/// # Errors
/// An invalid configuration.
pub fn simulate(config: &Config, costs: &Costs) -> Result<ModelReport, ConfigError> {
    config.validate()?;
    Ok(build::world(config, costs).run())
}
