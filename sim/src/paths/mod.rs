//! I/O paths over the thesis' emulated device, in virtual time, on as many processors as the thesis
//! had. `[Yu §6]`
//!
//! As in production, [`switch::path`] and [`switch::read_ahead`] decide: the route of a request,
//! the runner of a queue, when the queue leaves, the size of a batch, merges, and read-ahead.
//! [`block::device::flash::Timing`] determines when the device completes. The threads, processors
//! and cache pages are the model's own, each step at a cost of a [`Machine`]. No parameter is
//! fitted to a throughput.
//!
//! As in the thesis' kernel, and unlike in production, a thread that sends a command through a
//! polling path returns to its application only after the command has completed. Runs are
//! deterministic by seed. Limits of the model: `docs/results/model.md`.

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
