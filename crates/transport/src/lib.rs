//! The transport layer of host and target: receiving PDUs, and sending batches (caravans) of PDUs.
//! `[NVMe-TCP 1.0 §3.3]`, `[i10 §2.3, §2.4]`
//!
//! ```text
//!            Received                      PDUs
//!  socket ────────────► Receiver::next ─────────► connection of the host or the target
//!            Op::Receive                                  │ push_*
//!  socket ◄──────────── SendQueue::next_send ◄────────────┘
//!            Op::Send        one caravan for each send
//! ```
//!
//! A connection owns one [`Receiver`] and one [`SendQueue`]. Both are passive: they submit no
//! operations and read no clock. The connection interprets PDUs, queues commands and responses,
//! supplies send lists, and orders sends between connections. This crate has the framing, the
//! current receive, the send lists, the doorbell, and the accounting of each caravan.

pub mod key_file;
pub mod limits;
mod pdus;
mod receiver;
mod send_queue;

pub use receiver::{DirectReceive, Receiver};
pub use send_queue::{Departure, ListPair, ListSource, SendQueue};
