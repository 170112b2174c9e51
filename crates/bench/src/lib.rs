//! The load generator, the raw socket exchange that is its limit, and reports.

mod cpu;
pub mod limit;
pub mod load;
