//! The NVMe/TCP target: subsystems, controllers, discovery, and the connections of a core.
//!
//! [`Target`] is what a control plane holds: it makes and changes subsystems, namespaces and
//! listeners while I/O runs. [`PollGroup`] is a core's part of it, a service for
//! [`reactor::Core`]; the [`RunningTarget`] starts one on each core of a machine.

mod barrier;
mod controller;
mod core;
mod core_barriers;
mod core_switch;
mod core_tokens;
mod demand;
mod device_qos;
mod discovery;
mod io;
mod latency;
pub mod limits;
mod log_budget;
mod namespace;
mod pause;
mod poll_group;
pub mod probe;
mod promises;
mod qpair;
mod registry;
mod request;
mod running;
mod shares;
mod snapshot;
pub mod stats;
mod subsystem;
mod switch_stats;
mod target;
mod tcp;
mod tenant_events;
mod tenant_record;
mod tenant_watch;
mod tenants;
mod threads;
mod work;

pub use device_qos::DeviceQos;
pub use latency::{LATENCY_BOUNDS_NS, Latency, NamespaceLatency, TenantLatency};
pub use limits::{Limits, LimitsError};
pub use namespace::NamespaceOptions;
pub use poll_group::{Held, Message, PollGroup};
pub use qos::access::Grant;
pub use registry::{ControllerKind, Referral};
pub use running::{RunningTarget, TargetOptions};
pub use snapshot::{
    ControllerSnapshot, NamespaceSnapshot, OperationSnapshot, QueueSnapshot, ScheduledDevice,
    ServiceClass, Snapshot, SubsystemSnapshot, TenantSnapshot,
};
pub use stats::{CoreStats, Metric, MetricKind, NamespaceStats, TenantStats};
pub use subsystem::{SubsystemOptions, serial_of};
pub use switch_stats::{ClassStats, ServiceStats, SwitchStats};
pub use target::{Change, Target, TargetError};
pub use tenant_events::{Demand, TenantEvent, TenantEventKind};
pub use tenant_record::Windows;
pub use tenants::{DEFAULT_TENANT, Others, Tenancy, TenantGrant, TenantOptions};
pub use threads::ThreadsSnapshot;
