//! A device with its prices and its curve, as calibration would find them.

use super::scenario::{Pace, Setup, Tenant};
use base::Nanos;
use block::device::flash::{Parts, Profile};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Declaration, Percentile, TokenRate};

/// The share of reads of the load that the curve is measured with, in thousandths.
const READ_PERMILLE: u16 = 900;

/// The load grows by so many thousandths from point to point.
const STEP_PERMILLE: u64 = 40;

/// The curve ends where the median of reads is later than this: no SLO promises more.
const TOP: Nanos = Nanos::from_millis(4);

const WARM_UP: Nanos = Nanos::from_millis(50);
const MEASURED: Nanos = Nanos::from_millis(200);

/// A device, and what is known of it.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The parts of the device.
    pub parts: Parts,
    /// The cost of requests.
    pub costs: CostModel,
    /// The latency of reads at each load.
    pub curve: Curve,
}

/// Knows a device's prices from its parts, and measures its curve by loads of one reader in an open
/// loop.
///
/// # Panics
/// When a device of these parts has no curve: it answers nothing in time.
#[must_use]
pub fn calibrate(profile: Profile, seed: u64) -> Calibrated {
    calibrate_parts(profile.parts(), seed)
}

/// The same of a device of these parts.
///
/// # Panics
/// As [`calibrate`].
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

/// Returns the latencies of reads at so many tokens a second.
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
