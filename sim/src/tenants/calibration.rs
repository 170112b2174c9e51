//! A device with the cost model and curve that calibration would measure.

use super::scenario::{Pace, Setup, Tenant};
use base::Nanos;
use block::device::flash::{Parts, Profile};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Declaration, Percentile, TokenRate};

/// Share of reads in the load that measures the curve, in thousandths.
const READ_PERMILLE: u16 = 900;

/// Growth of the load from point to point, in thousandths.
const STEP_PERMILLE: u64 = 40;

/// The curve ends where the median read latency exceeds this: no SLO is longer.
const TOP: Nanos = Nanos::from_millis(4);

const WARM_UP: Nanos = Nanos::from_millis(50);
const MEASURED: Nanos = Nanos::from_millis(200);

/// A device with its model.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// Parts of the device.
    pub parts: Parts,
    /// Cost model.
    pub costs: CostModel,
    /// Read latency by load.
    pub curve: Curve,
}

/// Derives a device's prices from its parts, and measures its curve with one open-loop reader.
///
/// # Panics
/// If the device has no curve because it is too slow.
#[must_use]
pub fn calibrate(profile: Profile, seed: u64) -> Calibrated {
    calibrate_parts(profile.parts(), seed)
}

/// Calibrates a device of these parts.
///
/// # Panics
/// Like [`calibrate`].
#[must_use]
pub fn calibrate_parts(parts: Parts, seed: u64) -> Calibrated {
    let milli = |work: Nanos| {
        let milli = u32::try_from(work.0 * 1000 / parts.read.0).unwrap_or(u32::MAX);
        Price::milli(milli).expect("parts of flash cost something that can be asked")
    };
    let costs = CostModel::new(milli(parts.work()), milli(parts.read_alone));
    let lowest = u64::from(parts.dies) * 1_000_000_000 / parts.read.0 / 4;
    let flat = Point {
        rate: TokenRate(lowest),
        latency: [Nanos::from_micros(1); Percentile::COUNT],
    };
    let blank = Calibrated {
        parts,
        costs,
        curve: Curve::new(vec![flat]).expect("one point is a curve"),
    };
    let mut points = Vec::new();
    let mut rate = lowest;
    loop {
        let latency = latencies(&blank, rate, seed);
        if latency[Percentile::P50 as usize] > TOP {
            break;
        }
        points.push(Point {
            rate: TokenRate(rate),
            latency,
        });
        rate += (rate * STEP_PERMILLE / 1000).max(1);
    }
    let curve = Curve::new(points).expect("points in the order of their loads");
    Calibrated { curve, ..blank }
}

/// Returns the read latencies at `rate` tokens per second.
fn latencies(device: &Calibrated, rate: u64, seed: u64) -> [Nanos; Percentile::COUNT] {
    let milli = |operation| {
        let cost = device.costs.mixed.cost(operation, 1);
        u64::try_from(cost.0).expect("prices are positive")
    };
    let (read, write) = (
        milli(qos::PricedOperation::Read),
        milli(qos::PricedOperation::Write),
    );
    let reads = u64::from(READ_PERMILLE);
    let mean = (reads * read + (1000 - reads) * write) / 1000;
    let one = u64::try_from(qos::Tokens::whole(1).0).expect("positive");
    let iops = u64::try_from(u128::from(rate) * u128::from(one) / u128::from(mean))
        .expect("fewer requests than tokens");
    let pace = Pace::Random(iops.max(1));
    let tenant = Tenant::new(Declaration::default(), pace, READ_PERMILLE, vec![0]);
    let setup = Setup {
        scheduled: false,
        warm_up: WARM_UP,
        measured: MEASURED,
        ..Setup::new(device.clone(), 1, vec![tenant], seed)
    };
    let report = super::run(&setup).expect("best effort is always admitted");
    Percentile::ALL.map(|percentile| report.tenants[0].read_latency(percentile))
}
