//! Changes of the configuration while I/O runs: the steps on each core, and their acknowledgement.

pub(crate) mod ack;
pub(crate) mod step;
