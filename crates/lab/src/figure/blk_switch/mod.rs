//! Figures of "Rearchitecting Linux Storage Stack for µs Latency and High Throughput" (blk-switch,
//! OSDI 2021).

mod claims;
pub(super) mod fig02;
pub(super) mod fig03;
pub(super) mod fig07;
pub(super) mod fig08;
pub(super) mod fig10;
pub(super) mod fig13;
pub(super) mod fig15;

pub(super) use claims::{AVERAGE, LOAD, MANY, MANY_POLL_AVERAGE, P99, TOTAL};
