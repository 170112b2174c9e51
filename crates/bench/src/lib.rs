//! The load generator, the raw socket exchange that is its limit, the figures, and reports.

mod cpu;
pub mod figure;
pub mod limit;
pub mod load;
mod statistics;

pub use statistics::Spread;
