//! NVMe over Fabrics: commands that create and delete a queue, properties, and discovery.
//!
//! `[NVMe Base 2.0 §6]`

pub mod command;
pub mod connect;
pub mod disconnect;
pub mod discovery;
pub mod property;

pub use command::FabricsCommand;
pub use connect::{Connect, ConnectData, ConnectResponse, InvalidParameter};
pub use disconnect::Disconnect;
pub use discovery::{DiscoveryLogEntry, DiscoveryLogHeader};
pub use property::{Property, PropertyGet, PropertySet, PropertySize};
