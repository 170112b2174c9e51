//! Scaling with threads, tenants and connections. `[ReFlex §5.5, Fig. 6]`

use super::scenario::{Pace, Setup, Tenant};
use super::{Calibrated, Processor};
use base::Nanos;
use qos::{Declaration, Percentile, Slo};

/// SLO of [`cores`]: read latency.
pub const SLO: Nanos = Nanos::from_millis(2);

/// Requests per second that each latency-critical tenant of [`cores`] reserves and issues.
pub const IOPS: u64 = 20_000;

/// Best-effort tenants of [`cores`], each on its own thread.
pub const BEST_EFFORT: usize = 2;

/// Requests per second of each tenant of [`tenants`].
pub const IOPS_OF_A_TENANT: u64 = 100;

/// Outstanding requests of each best-effort tenant: enough to saturate the paper's device.
const DEPTH: u32 = 512;

/// Bytes of the requests of [`tenants`] and [`connections`].
const SMALL: u32 = 1024;

/// `critical` latency-critical tenants, each on its own thread, and two best-effort tenants on the
/// first two threads.
#[must_use]
pub fn cores(device: &Calibrated, critical: u32, processor: Processor, seed: u64) -> Setup {
    let best_effort = |thread: u32| {
        let pace = Pace::Depth(DEPTH);
        Tenant::new(Declaration::default(), pace, 800, vec![thread])
    };
    let promise = Declaration::LatencyCritical(Slo {
        percentile: Percentile::P95,
        latency: SLO,
        iops: IOPS,
        read_permille: 900,
        request_bytes: 4096,
    });
    let latency_critical = |thread: u32| Tenant::new(promise, Pace::Even(IOPS), 900, vec![thread]);
    let tenants = (0..2).map(best_effort);
    let tenants = tenants.chain((0..critical).map(latency_critical));
    setup(device, critical.max(2), tenants.collect(), processor, seed)
}

/// Tenants with 100 reads per second each, with one connection each on one of the threads.
#[must_use]
pub fn tenants(
    device: &Calibrated,
    threads: u32,
    count: u32,
    processor: Processor,
    seed: u64,
) -> Setup {
    let tenant = |number: u32| reader(IOPS_OF_A_TENANT, vec![number % threads]);
    let tenants = (0..count).map(tenant).collect();
    setup(device, threads, tenants, processor, seed)
}

/// One tenant with connections on one thread, each with a fixed rate of reads.
#[must_use]
pub fn connections(
    device: &Calibrated,
    count: u32,
    iops_each: u64,
    processor: Processor,
    seed: u64,
) -> Setup {
    let tenant = reader(u64::from(count) * iops_each, vec![0; count as usize]);
    setup(device, 1, vec![tenant], processor, seed)
}

/// A tenant with `iops` small reads per second, through connections on these threads.
fn reader(iops: u64, threads: Vec<u32>) -> Tenant {
    let pace = Pace::Random(iops);
    Tenant::new(Declaration::default(), pace, 1000, threads).with_bytes(SMALL)
}

fn setup(
    device: &Calibrated,
    threads: u32,
    tenants: Vec<Tenant>,
    processor: Processor,
    seed: u64,
) -> Setup {
    Setup {
        processor: Some(processor),
        // Ten thousand tenants come close to the device's capacity, so the backlog of their start
        // shrinks slowly.
        warm_up: Nanos::from_millis(800),
        ..Setup::new(device.clone(), threads, tenants, seed)
    }
}
