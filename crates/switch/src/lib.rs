//! The switch: decides which request goes first, through which core, in which batch, and when.
//!
//! Every request has a [`Class`]; every core has an ingress, and an egress with a lane per (class,
//! target). The egresses live where the I/O is; their decisions are here, and the simulator runs
//! the same code. Pure: takes `now`, loads and limits, and returns decisions; no clock, I/O,
//! logging or threads; allocates on creation only. Each value is owned by one core's loop. Loads
//! shared by cores are passed in by the caller, each read once; decisions tolerate stale loads.
//! Papers: `[blk-switch §3.2]` (Hwang et al., OSDI 2021), `[i10 §2.4]` (Hwang et al., NSDI 2020),
//! `[ReFlex §4.3]` (Klimovic et al., ASPLOS 2017), `[Yu §4.4]` (Yu, thesis, Seoul National
//! University).

pub mod affinity;
pub mod application_steering;
pub mod caravan;
pub mod class;
pub mod class_scheduler;
pub mod coalescing;
pub mod cpuset;
pub mod demand;
pub mod doorbell;
pub mod knobs;
pub mod latency_activity;
pub mod light_hosts;
pub mod limits;
pub mod load;
pub mod path;
pub mod read_ahead;
pub mod request_steering;
pub mod thread_scaling;

pub use application_steering::ApplicationSteering;
pub use caravan::{Caravan, CaravanLimits};
pub use class::{Class, PerClass};
pub use class_scheduler::ClassScheduler;
pub use coalescing::Coalescer;
pub use cpuset::CoreSet;
pub use doorbell::Doorbell;
pub use knobs::Knobs;
pub use latency_activity::{LatencyActivity, LatencyWatch};
pub use light_hosts::LightHosts;
pub use path::{Path, PathRules, PathSpec};
pub use read_ahead::{ReadAhead, ReadAheadRules};
pub use request_steering::RequestSteering;
pub use thread_scaling::ThreadScaling;
