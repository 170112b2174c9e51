//! The switch: which request goes first, by which core, with how many others, and when.
//!
//! Every request has a [`Class`]; every core has an ingress, and an egress per (class, target)
//! with a lane of its own. The egresses themselves live where the I/O is; the decisions that they
//! take are here, one file per noun, and the simulator runs the same code:
//!
//! - [`class`]: the class of a request, and what may therefore be done with it.
//! - [`caravan`], [`doorbell`]: how much leaves in one send, and when it leaves.
//! - [`latency_activity`]: the activity of `Latency` work, and how close its requests are.
//! - [`light_hosts`]: how much of what a host asks for one turn may take beside lighter hosts.
//! - [`coalescing`]: when an application is notified of completions that may wait.
//! - [`class_scheduler`]: what a core serves next, and how much of it.
//! - [`load`], [`demand`]: how busy each class keeps each core.
//! - [`request_steering`]: by which core a request leaves.
//! - [`application_steering`]: on which core a thread runs; [`cpuset`]: where it may run.
//! - [`affinity`]: when a target's queue is served where its packets come in.
//! - [`thread_scaling`]: how many threads a target uses, and which hands its queues to which.
//! - [`path`]: the runner of a device's queue, when it leaves, and what travels as one command.
//! - [`read_ahead`]: the pages that a cache reads before they are asked for.
//! - [`knobs`]: everything that can be turned, while it runs too; [`limits`]: how far.
//!
//! Pure: this crate takes `now`, loads and limits, and returns decisions. It reads no clock, does
//! no I/O, logs nothing, spawns nothing, and allocates only when something is made. Each value
//! here is owned by one core and called by its loop; what cores share (loads) the caller reads and
//! passes in, and no decision depends on such a number being right, only on its being read once.
//!
//! Citations name the paper's section: `[blk-switch §3.2]` (Hwang et al., OSDI 2021), `[i10 §2.4]`
//! (Hwang et al., NSDI 2020), `[ReFlex §4.3]` (Klimovic et al., ASPLOS 2017),
//! `[Yu §4.4]` (Yu, thesis on I/O paths to fast devices, Seoul National University).

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
