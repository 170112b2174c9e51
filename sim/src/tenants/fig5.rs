//! The two scenarios of tenant isolation. `[ReFlex §5.4, Fig. 5]`
//!
//! Tenant A has reads only and B a fifth of writes, both with an SLO of 500 µs at p95. C (mostly
//! reads) and D (mostly writes) are best effort with unlimited demand. In the first scenario A and
//! B use their whole reservations; in the second B uses only part of its reservation.

use super::Calibrated;
use super::scenario::{Pace, Setup, Tenant};
use base::Nanos;
use qos::{Declaration, Percentile, Slo};

/// SLO: read latency at p95.
pub const SLO: Nanos = Nanos::from_micros(500);

/// Names of the tenants, by number.
pub const NAMES: [&str; 4] = ["A", "B", "C", "D"];

/// Requests per second that A and B reserve on a whole device.
pub const IOPS: [u64; 2] = [120_000, 70_000];

/// Request rate of B in the second scenario, on a whole device.
pub const IOPS_B_LESS: u64 = 45_000;

/// Outstanding requests of C and of D, on a whole device.
const DEPTH: u32 = 256;

const READ_PERMILLE: [u16; 4] = [1000, 800, 950, 250];

/// A scenario of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// The reservations are fully used.
    First,
    /// B uses less than its reservation.
    Second,
}

/// A scenario over `threads` threads on a device that is 1 / `divisor` of the paper's.
#[must_use]
pub fn setup(
    device: &Calibrated,
    scenario: Scenario,
    scheduled: bool,
    divisor: u32,
    threads: u32,
    seed: u64,
) -> Setup {
    let asked = match scenario {
        Scenario::First => IOPS,
        Scenario::Second => [IOPS[0], IOPS_B_LESS],
    };
    let part = |iops: u64| iops / u64::from(divisor);
    let tenants = READ_PERMILLE.iter().enumerate().map(|(number, &share)| {
        let (declaration, pace) = if number < asked.len() {
            let slo = Slo {
                percentile: Percentile::P95,
                latency: SLO,
                iops: part(IOPS[number]),
                read_permille: share,
                request_bytes: 4096,
            };
            (
                Declaration::LatencyCritical(slo),
                Pace::Even(part(asked[number])),
            )
        } else {
            (
                Declaration::default(),
                Pace::Depth((DEPTH / divisor).max(1)),
            )
        };
        Tenant::new(declaration, pace, share, (0..threads).collect())
    });
    Setup {
        scheduled,
        ..Setup::new(device.clone(), threads, tenants.collect(), seed)
    }
}
