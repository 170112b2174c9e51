//! Changes of the configuration while I/O runs: the steps that cores take, and their
//! acknowledgement.

pub(crate) mod ack;
pub(crate) mod step;
