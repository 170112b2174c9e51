//! Front ends: interfaces through which unmodified applications use a device.
//!
//! A front end translates requests of its interface into requests of a [`block::Device`], and
//! decides nothing else. Each of its cores runs one [`reactor::Service`] with a [`DeviceIo`], which
//! holds channels to the device, one per class. The channels are opened on the front end's own
//! thread, so that thread itself sends and receives for a remote namespace.

mod acceptor;
mod address;
pub mod attach;
mod cache_life;
mod class_channel;
mod class_choice;
mod class_rules;
mod core_thread;
pub mod device_io;
pub mod errno;
mod error;
pub mod fuse;
mod handed;
mod io_counters;
mod known_losses;
pub mod limits;
mod log_budget;
pub mod nbd;
pub mod passed_sockets;
mod served_size;
pub mod ublk;
mod unix_socket;
pub mod vhost;
pub mod virtio_blk;

pub use block::IoCounts;
pub use class_choice::ClassChoice;
pub use class_rules::{ClassRule, ClassRules};
pub use core_thread::{Ping, Pinged};
pub use device_io::{DeviceIo, Finished};
pub use error::FrontendError;
pub use handed::Handed;
pub use io_counters::IoCounters;
pub use known_losses::KnownLosses;
pub use unix_socket::{Origin, TakenSocket};
