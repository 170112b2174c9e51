//! The transport's target side: bytes of a connection become commands and their data.
//!
//! A [`Session`] owns the framer, the table of commands, the payload that is arriving, and the send
//! list that answers fill. It yields [`Event`]s and takes answers; it has no device, no controller
//! and no core. The service carries values between a session and those ([`crate::service`]).
//!
//! ```text
//!   bytes ──► Framer ──► Session::next ──► Event::Command ──► (service)
//!                            │         └─► Event::Data        (service: R2T, or the command goes on)
//!                            └─ payload ─► buffer of the command
//!   bytes ◄── send list ◄── Output::push_* ◄── answers, R2Ts  (service)
//! ```

pub(crate) mod commands;
pub(crate) mod event;
pub(crate) mod handover;
mod input;
pub(crate) mod output;
pub(crate) mod send_lists;
mod state;
pub(crate) mod transfer;

pub(crate) use state::Session;
