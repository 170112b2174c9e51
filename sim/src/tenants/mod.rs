//! Tenants on emulated flash, in virtual time: who keeps a promise, and who gets what is left.
//!
//! The production decides: [`qos::Tenants`] admits, one [`qos::Scheduler`] for each thread releases,
//! and [`block::device::flash::Timing`] says when the device is done. Nothing else takes time here:
//! no processor and no network, so a latency is that of the device and of the queue before it, and
//! twelve threads with ten thousand tenants are as cheap as their requests. One seed is one run.
//!
//! A thread takes a turn when a request arrives, and when its scheduler asks for a round.

mod calibration;
mod engine;
pub mod fig5;
mod report;
mod scenario;

pub use calibration::{Calibrated, calibrate, calibrate_parts};
pub use engine::{RunError, run};
pub use report::{Report, TenantReport};
pub use scenario::{Change, Known, Load, Pace, Setup, Tenant};
