//! Layers: each wraps any device and is one itself.
//!
//! They are tools for tests and emulation. A layer does not expose the device's memory
//! ([`Channel::direct`](crate::Channel::direct) returns `None`), so that every request passes
//! through it.

mod below;
pub mod delay;
pub mod fault;
pub mod verify;

#[cfg(test)]
mod tests;

pub use delay::{Delay, DelayOptions};
pub use fault::{Fault, FaultEffect, FaultOptions, FaultRule};
pub use verify::Verify;

#[cfg(test)]
pub(crate) use tests::Stats;
