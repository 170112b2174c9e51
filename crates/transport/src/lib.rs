//! The transport of both ends: PDUs that arrive on a connection, and caravans of PDUs that leave.
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
//! operation and read no clock. The connection decides what a PDU means, which commands or answers
//! wait for room, where send lists come from and in which order connections send; this crate keeps
//! the framing, the receive under way, the send lists, the doorbell and the accounts of what is in
//! each caravan, which are the same at both ends.

pub mod limits;
mod pdus;
mod receiver;
mod send_queue;

pub use receiver::{DirectReceive, Receiver};
pub use send_queue::{Departure, ListPair, ListSource, SendQueue};
