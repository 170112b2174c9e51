//! Layers: each wraps any device and is one itself.
//!
//! [`Crypt`] encrypts; the others are tools for tests and emulation. A layer does not expose the device's memory
//! ([`Channel::direct`](crate::Channel::direct) returns `None`), so that every request passes
//! through it.

mod below;
pub mod crypt;
pub mod delay;
pub mod fault;
pub mod verify;

#[cfg(test)]
mod tests;

pub use crypt::{Crypt, CryptKey};
pub use delay::{Delay, DelayOptions};
pub use fault::{Fault, FaultEffect, FaultOptions, FaultRule};
pub use verify::Verify;

#[cfg(test)]
pub(crate) use tests::Stats;
