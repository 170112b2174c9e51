//! The TCP transport's target side: bytes of a connection to commands, and answers to bytes.

pub(crate) mod connection;
pub(crate) mod input;
pub(crate) mod luggage;
pub(crate) mod output;
mod seats;
pub(crate) mod term;
pub(crate) mod transfer;
