//! Hosts that do what no proper host would, and what a well-behaved neighbour notices of them.
//!
//! Loads speak NVMe/TCP by hand, on threads of their own that leave the processor to the neighbour:
//! what it is measured to lose, it loses at the target.

mod client;
mod loads;
mod neighbour;

pub use client::Peer;
pub use loads::{Load, Size, beside};
pub use neighbour::{Measured, Neighbour};
