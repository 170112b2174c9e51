//! Scaling with threads, tenants and connections. `[ReFlex §5.5, Fig. 6]`

use super::scenario::{Load, Pace, Setup, Tenant};
use super::{Calibrated, Processor};
use base::Nanos;
use qos::{Declaration, Percentile, Slo, TokenPoolRules};

/// The promised latency of reads in [`cores`].
pub const SLO: Nanos = Nanos::from_millis(2);

/// Requests a second that each latency-critical tenant of [`cores`] reserves, and asks for.
pub const IOPS: u64 = 20_000;

/// Best-effort tenants of [`cores`], each on a thread of its own.
pub const BEST_EFFORT: usize = 2;

/// Requests a second of each tenant of [`tenants`].
pub const IOPS_OF_A_TENANT: u64 = 100;

/// Requests that each best-effort tenant has under way: enough to fill a device of the paper's.
const DEPTH: u32 = 512;

/// Bytes of the requests of [`tenants`] and [`connections`].
const SMALL: u32 = 1024;

/// So many latency-critical tenants, each on a thread of its own, beside two of best effort on the
/// first two threads.
#[must_use]
pub fn cores(device: &Calibrated, critical: u32, processor: Processor, seed: u64) -> Setup {
    let best_effort = |thread: u32| Tenant {
        declaration: Declaration::default(),
        load: Load {
            pace: Pace::Depth(DEPTH),
            read_permille: 800,
            bytes: 4096,
        },
        threads: vec![thread],
    };
    let latency_critical = |thread: u32| Tenant {
        declaration: Declaration::LatencyCritical(Slo {
            percentile: Percentile::P95,
            latency: SLO,
            iops: IOPS,
            read_permille: 900,
            request_bytes: 4096,
        }),
        load: Load {
            pace: Pace::Even(IOPS),
            read_permille: 900,
            bytes: 4096,
        },
        threads: vec![thread],
    };
    let tenants = (0..2).map(best_effort);
    let tenants = tenants.chain((0..critical).map(latency_critical));
    setup(device, critical.max(2), tenants.collect(), processor, seed)
}

/// So many tenants, each with a connection on one of the threads, that read 100 times a second.
#[must_use]
pub fn tenants(
    device: &Calibrated,
    threads: u32,
    count: u32,
    processor: Processor,
    seed: u64,
) -> Setup {
    let tenant = |number: u32| Tenant {
        declaration: Declaration::default(),
        load: Load {
            pace: Pace::Random(IOPS_OF_A_TENANT),
            read_permille: 1000,
            bytes: SMALL,
        },
        threads: vec![number % threads],
    };
    let tenants = (0..count).map(tenant).collect();
    setup(device, threads, tenants, processor, seed)
}

/// One tenant with so many connections on one thread, each of which reads so many times a second.
#[must_use]
pub fn connections(
    device: &Calibrated,
    count: u32,
    iops_each: u64,
    processor: Processor,
    seed: u64,
) -> Setup {
    let tenant = Tenant {
        declaration: Declaration::default(),
        load: Load {
            pace: Pace::Random(u64::from(count) * iops_each),
            read_permille: 1000,
            bytes: SMALL,
        },
        threads: vec![0; count as usize],
    };
    setup(device, 1, vec![tenant], processor, seed)
}

fn setup(
    device: &Calibrated,
    threads: u32,
    tenants: Vec<Tenant>,
    processor: Processor,
    seed: u64,
) -> Setup {
    Setup {
        device: device.clone(),
        scheduled: true,
        rules: TokenPoolRules::default(),
        threads,
        processor: Some(processor),
        tenants,
        changes: Vec::new(),
        // Ten thousand tenants come close to what the device can do, so that what had to wait
        // while they began is made up for slowly.
        warm_up: Nanos::from_millis(800),
        measured: Nanos::from_millis(1000),
        seed,
    }
}
