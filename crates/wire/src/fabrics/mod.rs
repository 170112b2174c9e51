//! NVMe over Fabrics: commands that create, authenticate and delete a queue, properties, and
//! discovery.
//!
//! `[NVMe Base 2.0 §6]`

pub mod authentication;
pub mod command;
pub mod connect;
pub mod disconnect;
pub mod discovery;
pub mod property;

pub use authentication::AuthenticationTransfer;
pub use command::FabricsCommand;
pub use connect::{Connect, ConnectData, ConnectResponse, InvalidParameter};
pub use disconnect::Disconnect;
pub use discovery::{DiscoveryLogEntry, DiscoveryLogHeader};
pub use property::{Property, PropertyGet, PropertySet, PropertySize};
