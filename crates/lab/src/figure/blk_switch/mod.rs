//! Figures of "Rearchitecting Linux Storage Stack for µs Latency and High Throughput" (blk-switch,
//! OSDI 2021).

mod claims;
pub(super) mod fig02;
pub(super) mod fig03;
pub(super) mod fig07;
pub(super) mod fig08;
pub(super) mod fig09;
pub(super) mod fig10;
pub(super) mod fig11;
pub(super) mod fig12;
pub(super) mod fig13;
pub(super) mod fig15;

use claims::{AVERAGE, P99, P999, THROUGHPUT, TOTAL};

use super::plan::Panel;
use super::sample::Metric;

/// Panels of the simulated figures that have a sweep.
const LINES: &[Panel] = &[
    Panel::lines(AVERAGE),
    Panel::lines(P99),
    Panel::lines(TOTAL),
    Panel::lines(Metric::ThroughputPerCore),
];
