//! Configuration, actions, the HTTP/JSON interface and metrics.
//!
//! What is this: the control plane of a target. It owns the declarative [`Configuration`] that is
//! in force, and is the only place where intent (a file, a request over HTTP, a signal) becomes
//! an [`Action`]. It knows the dataplane only as the trait [`DataPlane`], which the program
//! implements over the target; it is called by the command line.
//!
//! What must never happen: that model and dataplane disagree about what is shared with whom, or
//! that this crate's threads run on, or wait on the path of, a dataplane core.

pub mod action;
pub mod api;
pub mod config;
pub mod control;
pub mod device_model;
pub mod diff;
pub mod files;
mod folders;
pub mod limits;
pub mod merge;
pub mod metrics;
pub mod model;
pub mod plane;
pub mod server;
pub mod state;
mod suggest;

pub use action::Action;
pub use api::{Token, TokenError};
pub use config::{ConfigError, Problem};
pub use control::{ChangeError, Control};
pub use device_model::DeviceModel;
pub use diff::{Fixed, FixedWhileRunning, build, diff};
pub use merge::{Contradiction, Difference, differences};
pub use model::{Configuration, Size};
pub use plane::{ApplyError, ApplyErrorKind, DataPlane, Snapshot};
pub use server::{Server, ServerError, ServerOptions};
pub use state::{State, StateError, StateFile};
