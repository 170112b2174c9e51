//! NVMe independent of the transport: commands, completions, and data structures.
//!
//! Contains the 64-byte command and the 16-byte completion, their fields, and the data structures
//! of Identify, Get Log Page and Get/Set Features.

pub mod admin;
pub mod ana;
pub mod async_event;
pub mod command;
pub mod completion;
pub mod extents;
pub mod feature;
pub mod identify;
pub mod identify_controller;
pub mod identify_lists;
pub mod identify_namespace;
pub mod io;
pub mod log_page;
pub mod nqn;
pub mod opcode;
pub mod reservation;
pub mod sgl;
pub mod status;
mod status_names;
pub mod vendor;

pub use admin::{Abort, AdminCommand, GetLogPage};
pub use ana::{AnaGroup, AnaState};
pub use async_event::AsyncEvent;
pub use command::Command;
pub use completion::Completion;
pub use extents::{EXTENT_OUTCOMES, ExtentEntry, ExtentTerms, ExtentsCommand, done_extents};
pub use feature::{GetFeatures, SetFeatures};
pub use identify::Identify;
pub use identify_controller::IdentifyController;
pub use identify_namespace::IdentifyNamespace;
pub use io::{DatasetManagement, LbaCommand};
pub use nqn::{DISCOVERY_NQN, Nqn, NqnError};
pub use opcode::{AdminOpcode, DataDirection, FabricsType, IoOpcode};
pub use sgl::{DataPointer, SglDescriptor};
pub use status::Status;
