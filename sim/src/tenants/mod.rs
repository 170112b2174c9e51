//! Tenants on emulated flash, in virtual time: the SLOs that are kept, and the shares of what is
//! left.
//!
//! The production decides: [`qos::Tenants`] admits, one [`qos::TokenScheduler`] for each thread releases,
//! and [`block::device::flash::Timing`] says when the device is done. The network takes no time, and
//! threads take what a [`Processor`] costs them: nothing where there is none. Then a latency is that
//! of the device and of the queue before it. One seed is one run.
//!
//! A thread takes a turn when a request arrives, when one has been answered by the device, and when
//! its scheduler asks for a round; a thread with work that takes time, as soon after that as it is
//! free.

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
