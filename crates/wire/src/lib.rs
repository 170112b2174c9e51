//! NVMe, NVMe over Fabrics and NVMe/TCP: bytes to values and back.
//!
//! This crate defines the wire format only. It depends on no other crate of the project. It reads
//! no clock, does no I/O, logs nothing and allocates nothing. Parsing never panics for any input:
//! the length of an input is checked once at the entrance, and carried by types from there on.
//!
//! - [`nvme`]: commands, completions, status, identify data, log pages, features.
//! - [`fabrics`]: Connect, properties, Disconnect, the discovery log page.
//! - [`tcp`]: the PDUs of the TCP transport, and the [`tcp::Framer`] that parses a byte stream into
//!   PDUs.
//!
//! Citations name the implemented clause: `[NVMe-TCP 1.0 §3.6.2.2]`, `[NVMe Base 2.0 §5.17]`,
//! `[NVMe NVM 1.0 §3.2.4]`.

mod bytes;
mod layout;
#[cfg(test)]
mod layout_tests;

pub mod fabrics;
pub mod limits;
pub mod nvme;
pub mod tcp;
pub mod text;
