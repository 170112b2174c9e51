//! The performance model: how the stack would do on machines with more cores than there are.
//!
//! [`simulate`] runs a [`Config`] in virtual time on machines with a price for every step, from a
//! [`Costs`] file. What goes first, by which core, with how many others and when is decided by the
//! production crate [`switch`]; the model supplies only what a machine and its kernel do: cores
//! with a fair scheduler and priorities (`cpu`), dataplane loops and applications as threads
//! (`engine`, `app`), lanes and links (`lane`). Apart from the simulated world of this crate, which
//! runs the whole stack and looks for faults; this one moves no bytes and looks at time.
//!
//! One seed is one run. Must never: decide something that the switch decides, or read a clock.
//! What is modelled and what is not, and how it is validated: `docs/model.md`.

mod app;
mod build;
mod caches;
mod calendar;
pub mod config;
pub mod costs;
mod cpu;
mod engine;
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
pub use report::Report;
pub use world::simulate;
