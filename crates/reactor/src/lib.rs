//! The per-core loop: operations as data, and the io_uring driver that runs them.
//!
//! Upper layers submit typed [`Op`]s to a [`Driver`] and receive [`Completion`]s; [`Core`] is the
//! loop over a driver, a [`Service`] and a mailbox. No async runtime, and no lock or allocation on
//! the I/O path after start.

pub mod address;
pub mod arrivals;
pub mod chap;
pub mod clock;
mod core;
mod core_thread;
mod driver;
mod idle;
mod idle_spinner;
pub mod limits;
mod mailbox;
pub mod memory;
mod op;
mod op_namespace;
pub mod placement;
mod preemption;
pub mod priority;
mod random;
mod results;
mod send_list;
mod simulated;
mod sleeper;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
pub mod uring;

pub use crate::core::{Context, Core, Service, yield_core};
pub use core_thread::{CoreThread, start_core};
pub use driver::{Driver, DriverStats, Wait, Wake};
pub use idle::{IdlePolicy, PollPolicy};
pub use idle_spinner::IdleSpinner;
pub use mailbox::{Mailbox, MailboxSender};
pub use memory::{
    Buffer, BufferClass, BufferPool, IoSlice, Memory, Region, RegionHandle, UnorderedStores,
    prefetch,
};
pub use op::{
    Allocation, Completion, FileId, ListenerId, ListeningSocket, Op, OpKey, OpNamespace, Outcome,
    Received, SocketId, SocketOptions, Stream, UblkCommand, accept_has_ended,
};
pub use op_namespace::{Guard, OpNamespaceLease};
pub use random::fill_random;
pub use send_list::{ListPosition, Segment, SendList, SendListPool};
pub use simulated::Simulated;
pub use sleeper::Sleeper;
