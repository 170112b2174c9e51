//! Set-up that tests, fuzzers and the laboratory share. Nothing that users install depends on it.
//!
//! [`Client`] is a scripted host, and [`Session`] the same without a socket: they speak the wire format
//! and check little, so that their user can break every rule. [`peer`] is a scripted
//! controller, and [`device`] has the suite of the device contract.

mod client;
pub mod device;
pub mod fields;
mod helpers;
mod io_command;
mod pdus;
pub mod peer;
mod session;

pub use client::{Client, PATIENCE, dial};
pub use helpers::{eventually, own_address, pattern};
pub use io_command::{IoCommand, parse_ranges};
pub use pdus::{Found, Pdu, Pdus};
pub use session::{Dialect, HOST_ID, Session, blocks, connect, connect_data, enable};
