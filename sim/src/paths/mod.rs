//! I/O paths over the thesis' emulated device, in virtual time, on as many processors as the thesis
//! had. `[Yu §6]`
//!
//! The rules of [`switch::path`] and [`switch::read_ahead`] decide, as in production: by which route
//! a request goes, the runner of a queue, when the queue leaves, what a batch takes, what travels as
//! one command, and what is read ahead. [`block::device::flash::Timing`] says when the device is
//! done. The threads, their processors and the pages of the cache are the model's own, each step at
//! a price of a [`Machine`]. Nothing of it is fitted to a throughput.
//!
//! As in the thesis' kernel, and other than in production, a thread that sends a command by a path
//! that polls does not return to its application before the command is over. One seed is one run.
//! Limits of the model: `docs/results/model.md`.

mod cache;
mod machine;
mod report;
mod request;
mod run;
mod scenario;
mod schedule;
#[cfg(test)]
mod tests;
mod turns;
mod world;

pub use machine::Machine;
pub use report::Report;
pub use run::run;
pub use scenario::{CacheSize, Load, Mix, Pattern, Setup};
