//! The NVMe/TCP target: subsystems, controllers, discovery, and the connections of a core.
//!
//! A control plane holds a [`Target`]: it creates and changes subsystems, namespaces and listeners
//! while I/O runs. A [`PollGroup`] is a core's part of the target, a service for [`reactor::Core`];
//! [`RunningTarget`] starts one on each core of a machine.

mod authentication;
mod change;
mod command;
mod controller;
mod error;
mod events;
mod extent_table;
mod fences;
mod latency;
pub mod limits;
mod line;
mod log_budget;
mod message;
mod namespace;
mod permit;
pub mod probe;
mod qos;
mod request;
mod reservation;
mod service;
mod session;
mod shared;
mod shares;
mod snapshot;
pub mod stats;
mod subsystem;
mod switch;
mod takeover;
mod target;
mod tls;
pub mod trace;

pub use ::qos::access::AccessGrant;
pub use authentication::Authentication;
pub use change::ack::{Waiter, wait_by};
pub use controller::registry::ControllerKind;
pub use error::TargetError;
pub use events::{Demand, EventKind, Overrun, RefusedHost, TargetEvent};
pub use latency::{LATENCY_BOUNDS_NS, Latency, NamespaceLatency, TenantLatency};
pub use limits::{Limits, LimitsError};
pub use message::Message;
pub use namespace::NamespaceOptions;
pub use qos::access::{DEFAULT_TENANT, Others, Tenancy, TenantGrant, TenantOptions};
pub use qos::device::DeviceQos;
pub use qos::record::Windows;
pub use qos::snapshot::{ServiceClass, TenantSnapshot};
pub use reservation::kept::{Registrant, ReservationRecord, ReservationSnapshot};
pub use service::{Held, PollGroup};
pub use shared::Referral;
pub use snapshot::{
    ControllerSnapshot, NamespaceSnapshot, OperationSnapshot, QueueSnapshot, ScheduledDevice,
    Snapshot, SubsystemSnapshot,
};
pub use stats::{CoreStats, Metric, MetricKind, NamespaceStats, TenantStats};
pub use subsystem::{SubsystemOptions, serial_of};
pub use switch::stats::{ClassStats, ServiceStats, SwitchStats};
pub use switch::threads::ThreadsSnapshot;
pub use takeover::{Handed, HandedSockets, HandedState};
pub use target::running::{RunningTarget, TargetOptions};
pub use target::trace::Trace;
pub use target::{Change, Target};
pub use tls::{Listener, OpenListener, TlsMode};
pub use wire::nvme::ana::AnaState;
