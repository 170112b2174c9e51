//! The laboratory: figures, limits, hostile loads, and runs with faults by seed.
//!
//! It measures the stack and is no part of it: no other crate depends on this one. What it measures
//! runs in processes of its own ([`process`]), of the program `switchyard`.

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

/// Tells a person how far a measurement is.
pub type Note<'a> = &'a dyn Fn(std::fmt::Arguments<'_>);
