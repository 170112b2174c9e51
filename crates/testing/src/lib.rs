//! Set-up shared by tests, fuzzers and the laboratory. No installed program depends on it.
//!
//! [`Client`] is a scripted host, and [`Session`] the same without a socket: both implement the
//! wire format with few checks, so that a test can violate every rule. [`peer`] is a scripted
//! controller, and [`device`] has the conformance suite of the device contract.

mod certificates;
mod client;
pub mod device;
pub mod fields;
mod helpers;
mod io_command;
mod pdus;
pub mod peer;
mod session;

pub use certificates::Authority;
pub use client::{Client, PATIENCE, dial};
pub use helpers::{eventually, own_address, pattern};
pub use io_command::{IoCommand, parse_ranges};
pub use pdus::{Found, Pdu, Pdus};
pub use session::{Dialect, HOST_ID, Session, blocks, connect, connect_data, enable};
