//! The switch of a core: egress order, loads, threads in use. `[blk-switch §3]`

pub(crate) mod core;
pub(crate) mod moves;
pub(crate) mod stats;
pub(crate) mod threads;
pub(crate) mod work;
