//! Layers: each wraps any device and is one itself.
//!
//! None of them is transparent to a transport that would use the device's memory directly
//! ([`Channel::direct`](crate::Channel::direct) answers `None`), so that every request comes
//! through. They are tools for tests and for emulation, and cost what they cost.

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
