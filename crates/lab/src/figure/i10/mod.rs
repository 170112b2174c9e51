//! Figures of "TCP ≈ RDMA: CPU-efficient Remote Storage Access with i10" (NSDI 2020).

pub(super) mod fig06;
pub(super) mod fig07;
pub(super) mod fig08;
pub(super) mod fig09;
pub(super) mod fig10;
pub(super) mod fig11;

use super::plan::Panel;
use super::sample::{Metric, Statistic};
use super::scenario::{Layout, Scenario, System, Workload};
use switch::Class;
use switch::knobs::Preset;

/// i10 itself: its lanes, caravans and doorbell.
const I10: System = System::of("i10", Preset::Linux);

/// Systems of Figs. 6, 8 and 11.
const SYSTEMS: [System; 3] = [System::NVME_TCP, I10, System::SWITCHYARD];

/// Panels of the simulated figures.
const PANELS: &[Panel] = &[Panel::lines(Metric::Requests)];

/// Number of cores, or of targets with a core each, up to which NVMe/TCP in the model stays well
/// below 100 Gbit/s, which is 3.05 million responses of 4 KiB per second. With more of them, every
/// system reaches the same number: the link's limit.
const BELOW_THE_LINK: f64 = 12.0;

const AVERAGE: Metric = Metric::Latency(Class::Throughput, Statistic::Average);
const P99: Metric = Metric::Latency(Class::Throughput, Statistic::P99);

/// One app of 4 KiB random requests, with the target on the other core. `[i10 §4.1]`
fn small(system: System, depth: u32, read_percent: u8) -> Scenario {
    let system = system.loaded(4096, depth);
    let app = Workload {
        read_percent,
        ..Workload::throughput(1, &system)
    };
    Scenario::of(system, Layout::Split, &[app])
}
