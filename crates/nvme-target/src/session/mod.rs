//! The transport's target side: bytes of a connection become commands and their data.
//!
//! A [`Session`] owns the [`Receiver`] and the [`SendQueue`] of its connection, which are the same
//! on a host, the table of commands, and the destination of the payload that is arriving. It yields
//! [`Event`]s and takes answers; it has no device, no controller and no core. The service carries
//! values between a session and those ([`crate::service`]).
//!
//! ```text
//!   bytes ──► Receiver ──► Session::next ──► Event::Command ──► (service)
//!                              │         └─► Event::Data        (service: R2T, or the command goes on)
//!                              └─ payload ─► buffer of the command
//!   bytes ◄── SendQueue ◄── Output::push_* ◄── answers, R2Ts    (service)
//! ```
//!
//! [`Receiver`]: transport::Receiver
//! [`SendQueue`]: transport::SendQueue

pub(crate) mod commands;
pub(crate) mod event;
pub(crate) mod handover;
mod input;
pub(crate) mod output;
mod pace;
pub(crate) mod send_lists;
mod state;
pub(crate) mod transfer;

pub(crate) use state::{Session, Stalled};
