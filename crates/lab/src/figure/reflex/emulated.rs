//! Reads of an emulated device at full scale in virtual time.
//!
//! The devices are those of `block::device::flash`, loaded as in a calibration: independent
//! requests in an open loop. The costs of the performance model are not used.

use crate::figure::plan::Panel;
use crate::figure::sample::Metric;
use crate::figure::simulation::{MEASURED, MEASURED_QUICK, READ_TAIL, line};
use base::Nanos;
use load::calibrate::{Emulated, Probe as _};
use qos::Percentile;
use qos::fit::Kind;
use sim::model::figures::{Axis, Point, Series};

/// Panels of the figures.
pub(super) const PANELS: &[Panel] = &[Panel::lines(Metric::ReadTail)];

/// Bytes of each device; latencies do not depend on them.
const DEVICE_BYTES: u64 = 1 << 40;

/// Lines end at this read latency, the upper end of the paper's axis.
const TOP: Nanos = Nanos::from_millis(2);

/// The lines: a name, thousandths of reads, bytes of a request.
pub(super) const SHARES: [(&str, u16, u32); 6] = [
    ("100 %", 1000, 4096),
    ("99 %", 990, 4096),
    ("95 %", 950, 4096),
    ("90 %", 900, 4096),
    ("75 %", 750, 4096),
    ("50 %", 500, 4096),
];

/// A line: the p95 at each step, in thousands of `1 / weight` requests per second.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates of a few millions"
)]
pub(super) fn series(
    profile: &str,
    &(system, read_permille, request_bytes): &(&'static str, u16, u32),
    x: Axis,
    steps: &[u32],
    weight: f64,
    quick: bool,
    seed: u64,
) -> Series {
    let kind = Kind {
        request_bytes,
        read_permille,
    };
    let span = if quick { MEASURED_QUICK } else { MEASURED };
    let profile = profile.parse().expect("a profile of ours");
    let mut device = Emulated::for_time(profile, DEVICE_BYTES, span.into(), seed);
    let points = steps.iter().map_while(|&step| {
        let iops = f64::from(step) * 1e3 / weight;
        let measured = device
            .measure(kind, iops as u64)
            .expect("the device is large enough");
        let p95 = measured.latency[Percentile::P95 as usize];
        (p95 <= TOP).then(|| Point {
            x: step.into(),
            y: p95.0 as f64 / 1e3,
        })
    });
    line(READ_TAIL, x, system, points.collect())
}
