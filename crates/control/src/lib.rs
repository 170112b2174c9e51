//! The control plane of a target: HTTP/JSON interface, metrics, and changes while it runs.
//!
//! It owns the [`Configuration`] in force, and is the only place where intent (a file, a request
//! over HTTP, a signal) becomes an [`Action`].
//! [`Control`] carries actions out on a [`DataPlane`]: the [`Plane`] over a running target. The
//! command line calls this crate. Other processes have the same server, errors and metrics
//! ([`server::Managed`]).
//!
//! Two things must never happen: model and dataplane disagree about the volumes and their hosts, or
//! a thread of this crate runs on, or waits on the path of, a dataplane core.

pub mod ana;
pub mod api;
pub mod calibration;
pub mod client;
pub mod control;
pub mod credentials;
mod dataplane;
mod disk;
mod folders;
pub mod host_keys;
pub mod limits;
pub mod metrics;
pub mod plane;
pub mod process;
pub mod server;
pub mod serving;
pub mod snapshot;
pub mod socket_access;
pub mod state;
pub mod takeover;

pub use control::{ChangeError, Control};
pub use credentials::{Token, TokenError};
pub use dataplane::DataPlane;
pub use plane::Plane;
pub use server::{Server, ServerError, ServerOptions};
pub use serving::{Serving, ServingError, ServingOptions};
pub use snapshot::Snapshot;
pub use state::{State, StateError, StateFile};

#[cfg(doc)]
use config::{Action, Configuration};
