//! Hosts that do what no proper host would, and what a well-behaved neighbour notices of them.
//!
//! Loads speak NVMe/TCP by hand, on threads of their own that leave the processor to the neighbour:
//! what it is measured to lose, it loses at the target.

mod args;
mod confined;
mod loads;
mod neighbour;
mod report;
mod run;

pub use args::HostileArgs;
pub use report::HostileReport;
pub use run::run;
