//! The transport's target side: converts the bytes of a connection to commands and their data.
//!
//! A [`Session`] owns the [`Receiver`] and the [`SendQueue`] of its connection, which hosts use as
//! well, the command table, and the destination of the payload that is arriving. It yields
//! [`Event`]s and takes answers; it has no device, no controller and no core. The service
//! ([`crate::service`]) connects a session to these.
//!
//! ```text
//!   bytes ──► Receiver ──► Session::next ──► Event::Command ──► (service)
//!                              │         └─► Event::Data        (service: R2T, or it resumes)
//!                              └─ payload ─► buffer of the command
//!   bytes ◄── SendQueue ◄── Output::push_* ◄── answers, R2Ts    (service)
//! ```
//!
//! [`Receiver`]: transport::Receiver
//! [`SendQueue`]: transport::SendQueue

pub(crate) mod commands;
pub(crate) mod event;
pub(crate) mod handover;
pub(crate) mod held;
mod input;
pub(crate) mod output;
mod pace;
pub(crate) mod send_lists;
mod state;
pub(crate) mod transfer;

pub(crate) use state::{Session, Stalled};
