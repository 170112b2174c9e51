//! The laboratory: figures, limits, peers of other protocols, hostile loads, and calibration.
//!
//! It measures the stack and is no part of it: no crate of the data path depends on this one.

pub mod calibrate;
pub mod figure;
pub mod hostile;
pub mod limit;
pub mod remote;
