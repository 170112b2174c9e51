//! Configuration, actions, the HTTP/JSON interface and metrics.
//!
//! The control plane of a target. It owns the declarative [`Configuration`] in force, and is the
//! only place where intent (a file, a request over HTTP, a signal) becomes an [`Action`].
//! [`Control`] carries actions out on a [`DataPlane`]: the [`Plane`] over a running target. The
//! command line calls this crate. Other processes have the same server, errors and metrics
//! ([`server::Managed`]).
//!
//! Two things must never happen: model and dataplane disagree about the volumes and their hosts, or
//! a thread of this crate runs on, or waits on the path of, a dataplane core.

pub mod action;
pub mod api;
pub mod attachments;
pub mod calibration;
pub mod client;
pub mod config;
pub mod control;
mod dataplane;
pub mod device_model;
pub mod diff;
mod error;
pub mod files;
mod folders;
pub mod limits;
pub mod merge;
pub mod metrics;
pub mod model;
pub mod plane;
pub mod process;
pub mod provenance;
pub mod server;
pub mod serving;
pub mod snapshot;
pub mod socket_access;
pub mod state;
mod suggest;

pub use action::Action;
pub use api::{Token, TokenError};
pub use config::{ConfigError, Problem};
pub use control::{ChangeError, Control};
pub use dataplane::DataPlane;
pub use device_model::DeviceModel;
pub use diff::{Fixed, FixedWhileRunning, build, diff};
pub use error::{ApplyError, ApplyErrorKind, with_causes};
pub use merge::{Contradiction, Difference, differences};
pub use model::{Configuration, Size};
pub use plane::Plane;
pub use server::{Server, ServerError, ServerOptions};
pub use serving::{Serving, ServingError, ServingOptions};
pub use snapshot::Snapshot;
pub use state::{State, StateError, StateFile};
