//! Hostile hosts, and their effect on a well-behaved host (neighbour).
//!
//! The loads implement NVMe/TCP by hand, on their own threads that yield the processor to the
//! neighbour, so that its measured loss is the target's.

mod args;
mod confined;
mod handshake;
mod loads;
mod neighbour;
mod report;
mod run;

pub use args::HostileArgs;
pub use report::HostileReport;
pub use run::run;
