//! The load generator: apps that keep requests in flight on a local or remote device.
//!
//! An [`App`] describes a load. [`run`] starts the threads of several apps together, each with its
//! own driver and channel, and reports the results of each app between warm-up and end. The command
//! line and the experiments use it. A device is any [`block::Device`]: a local one, or a namespace
//! of any NVMe/TCP target.
//!
//! Invariants: the generator's own delay never counts as the device's (see `worker` on clocks); no
//! allocation per request; no wrong byte passes verification.

mod app;
mod arrivals;
mod bench;
mod by_priority;
mod cache_report;
pub mod calibrate;
mod content;
mod forms;
mod hosts;
mod job;
mod knob_turns;
pub mod limits;
mod machine;
mod measured;
mod path_report;
mod planner;
mod processes;
mod progress;
mod report;
mod round_robin;
mod run;
mod statistics;
mod switch_report;
mod table;
pub mod vhost;
mod worker;
mod written;

#[cfg(test)]
mod allocation_tests;
#[cfg(test)]
mod tests;

pub use app::{APP_FORM, Access, App, AppError, Pace};
pub use arrivals::exponential;
pub use bench::{Storage, bench};
pub use by_priority::ByPriority;
pub use cache_report::CacheReport;
pub use forms::{Cores, measured_seconds, seconds};
pub use hosts::{Remote, loads_of_hosts, remote_loads, start_switchboard, switched_loads};
pub use knob_turns::{KnobChange, KnobTurn, KnobTurns};
pub use machine::Machine;
pub use path_report::{CpuShares, PathReport};
pub use processes::{follow, lead};
pub use report::{AppReport, Latency, LoadReport, SoftwareTime};
pub use round_robin::RoundRobin;
pub use run::{FollowerStart, Load, LoadOptions, LoadProgress, Stage, run, run_led};
pub use statistics::RunSummary;
pub use switch_report::{ClassSwitchReport, CoreSwitchReport, SwitchReport, Turned};
pub use table::aligned;
