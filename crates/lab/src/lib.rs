//! The laboratory: figures, limits, hostile loads, and runs with injected faults by seed.
//!
//! It measures the stack and is not part of it: no other crate depends on this one. The measured
//! targets and loads are processes of the program `switchyard` ([`process`]).

pub mod check;
pub mod curves;
pub mod figure;
mod folder;
pub mod hostile;
pub mod limit;
pub mod model;
mod peer;
pub mod plain;
mod proc;
pub mod process;
pub mod take_over;

/// Prints the progress of a measurement.
pub type Note<'a> = &'a dyn Fn(std::fmt::Arguments<'_>);
