//! The TCP transport's host side: one connection is one queue pair. `[NVMe-TCP 1.0 §3]`

mod authentication;
mod chap;
mod connection;
mod outgoing;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

pub(crate) use connection::{Join, Qpair, QpairConfig, was_away};
