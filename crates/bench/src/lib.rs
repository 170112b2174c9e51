//! The load generator, the raw socket exchange that is its limit, calibration, the figures, and
//! reports.

pub mod calibrate;
mod cpu;
pub mod figure;
pub mod hostile;
pub mod limit;
pub mod load;
pub mod remote;
mod statistics;

pub use statistics::Spread;
