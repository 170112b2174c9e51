//! The TCP transport's host side: one connection is one queue pair. `[NVMe-TCP 1.0 §3]`

mod config;
mod connection;
mod giving_up;
mod headers;
mod outgoing;
mod payload;
mod receive;
mod refusal;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub(crate) use config::QpairConfig;
pub(crate) use connection::{Join, Qpair, was_away};
