//! The two scenarios of tenant isolation. `[ReFlex §5.4, Fig. 5]`
//!
//! A reads only and B writes a fifth, both with a p95 of 500 µs promised; C and D are best effort,
//! of mostly reads and of mostly writes, and ask for all that they can get. In the first scenario
//! A and B ask for what they reserved; in the second, B leaves some of it.

use super::Calibrated;
use super::scenario::{Pace, Setup, Tenant};
use base::Nanos;
use qos::{Declaration, Percentile, Slo};

/// The promised latency of reads.
pub const SLO: Nanos = Nanos::from_micros(500);

/// Names of the tenants, by number.
pub const NAMES: [&str; 4] = ["A", "B", "C", "D"];

/// Requests a second that A and B reserve of a whole device.
pub const IOPS: [u64; 2] = [120_000, 70_000];

/// Rate that B asks for in the second scenario.
pub const IOPS_B_LESS: u64 = 45_000;

/// Requests that C and D each have under way, of a whole device.
const DEPTH: u32 = 256;

const READ_PERMILLE: [u16; 4] = [1000, 800, 950, 250];

/// Which scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// All that is reserved is used.
    First,
    /// B uses less than it reserved.
    Second,
}

/// A scenario on a device that is one of so many parts of the paper's, over so many threads.
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
