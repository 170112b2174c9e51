//! The TCP transport's host side: one connection is one queue pair. `[NVMe-TCP 1.0 §3]`

mod connection;
mod giving_up;
mod headers;
mod outgoing;
mod payload;
mod queue_in_use;
mod receive;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub(crate) use connection::{Join, Qpair, QpairConfig};
