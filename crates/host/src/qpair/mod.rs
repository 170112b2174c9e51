//! The TCP transport's host side: one connection is one queue pair. `[NVMe-TCP 1.0 §3]`

mod connection;
mod doorbell;
mod receive;
mod transmit;

pub(crate) use connection::{Join, Qpair, QpairConfig};
pub(crate) use doorbell::LaneDoorbell;
