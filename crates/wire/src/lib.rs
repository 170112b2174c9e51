//! NVMe, NVMe over Fabrics and NVMe/TCP: bytes to values and back.
//!
//! This crate owns the wire format and nothing else. Every crate above it (host, target, simulator,
//! load generator) calls it; it calls none. It reads no clock, does no I/O, logs nothing and
//! allocates nothing. Parsing never panics, whatever a peer sends: the length of an input is
//! checked once, at the entrance, and from there on the types carry it.
//!
//! - [`nvme`]: commands, completions, status, identify data, log pages, features.
//! - [`fabrics`]: Connect, properties, Disconnect, the discovery log page.
//! - [`tcp`]: the PDUs of the TCP transport, and the [`tcp::Framer`] that finds them in a stream.
//!
//! Citations name the clause that a piece of code implements: `[NVMe-TCP 1.0 §3.6.2.2]`,
//! `[NVMe Base 2.0 §5.17]`, `[NVMe NVM 1.0 §3.2.4]`.

mod bytes;
mod layout;
#[cfg(test)]
mod layout_tests;

pub mod fabrics;
pub mod limits;
pub mod nvme;
pub mod tcp;
pub mod text;
