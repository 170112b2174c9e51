//! Tenants on emulated flash, in virtual time: which SLOs are met, and the shares of the spare
//! capacity.
//!
//! Production code decides: [`qos::Tenants`] admits, one [`qos::TokenScheduler`] per thread
//! releases requests, and [`block::device::flash::Timing`] determines when the device completes.
//! The network takes no time, and threads take the time of a [`Processor`], or none without one.
//! Then a latency is that of the device and its queue. Runs are deterministic by seed.
//!
//! A thread takes a turn when a request arrives, when the device completes a request, and when its
//! scheduler requests a round; if its work takes time, as soon as it is free.

mod calibration;
mod engine;
pub mod fig5;
pub mod fig6;
mod processor;
mod report;
mod request;
mod scenario;

pub use calibration::{Calibrated, calibrate, calibrate_parts};
pub use engine::{RunError, run};
pub use processor::Processor;
pub use report::{Report, TenantReport};
pub use scenario::{Change, Known, Load, Pace, Setup, Tenant};
