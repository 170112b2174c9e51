//! The TCP transport's target side: bytes of a connection to commands, and answers to bytes.

pub(crate) mod connection;
pub(crate) mod handover;
pub(crate) mod input;
pub(crate) mod moving;
pub(crate) mod output;
pub(crate) mod qpair;
pub(crate) mod termination;
pub(crate) mod token_queues;
pub(crate) mod transfer;
