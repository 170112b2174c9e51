//! Seeded random volumes that arrive, grow and end, and the targets for them.

use base::{Nanos, Prng};
use qos::DeviceModel;
use qos::cost::Price;
use qos::curve::Point;
use qos::limits::LATENCY_RESERVE_PERMILLE;
use qos::placement::{Demand, DomainId, Node, Volume, VolumeId};
use qos::{CostModel, Curve, Percentile, Slo, TokenRate};

const KIB: u32 = 1 << 10;
const GIB: u64 = 1 << 30;

/// Capacity of a target in bytes.
const NODE_BYTES: u64 = 48 << 40;

/// Network bandwidth of a target in bytes per second: 25 Gbit/s.
const NODE_BANDWIDTH: u64 = 3_125_000_000;

/// Targets of a failure domain.
const DOMAIN_NODES: u32 = 20;

/// The device of a target: tokens per second, and p95 in µs. The proportion of the rates at 500 µs
/// and 2 ms is that of ReFlex' sample device.
const CURVE: [(u64, u64); 5] = [
    (100_000, 150),
    (360_000, 500),
    (560_000, 1_000),
    (750_000, 2_000),
    (800_000, 4_000),
];

/// Price of a written unit in thousandths of a token: that of ReFlex' sample device.
const WRITE_MILLI: u32 = 10_000;

/// A kind of volumes. Numbers are drawn by octaves: from `low` to `low << octaves`, each octave
/// with equal chance.
struct Kind {
    /// Share of all volumes in per cent.
    percent: u64,
    /// p95 of reads in µs; `None`: best effort.
    latency_us: Option<u64>,
    bytes: (u64, u32),
    /// Requests per second; of best effort, the floor in tokens per second.
    rate: (u64, u32),
    request_bytes: &'static [u32],
    /// Range of the share of reads in per cent.
    read_percent: (u16, u16),
}

/// The mix: databases, general disks, file servers, archives.
const KINDS: [Kind; 4] = [
    Kind {
        percent: 10,
        latency_us: Some(500),
        bytes: (16 * GIB, 4),
        rate: (500, 4),
        request_bytes: &[4 * KIB],
        read_percent: (80, 100),
    },
    Kind {
        percent: 20,
        latency_us: Some(1_000),
        bytes: (32 * GIB, 4),
        rate: (250, 4),
        request_bytes: &[4 * KIB, 8 * KIB],
        read_percent: (70, 100),
    },
    Kind {
        percent: 30,
        latency_us: Some(2_000),
        bytes: (32 * GIB, 4),
        rate: (100, 4),
        request_bytes: &[8 * KIB, 16 * KIB, 32 * KIB],
        read_percent: (60, 95),
    },
    Kind {
        percent: 40,
        latency_us: None,
        bytes: (64 * GIB, 4),
        rate: (125, 4),
        request_bytes: &[],
        read_percent: (0, 0),
    },
];

/// A change of the set of volumes.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Arrival(VolumeId, Volume),
    Growth(VolumeId, Volume),
    End(VolumeId),
}

/// Returns the device of the targets.
///
/// # Panics
/// Never: the constants are a model.
pub fn device() -> DeviceModel {
    let point = |(rate, p95): (u64, u64)| {
        let of = |tenths: u64| Nanos::from_micros(p95 * tenths / 10);
        // The curve is the device's part of the latency.
        let device = |latency: Nanos| Nanos(latency.0 * (1000 - LATENCY_RESERVE_PERMILLE) / 1000);
        Point {
            rate: TokenRate(rate),
            latency: [of(5), of(10), of(15), of(30)].map(device),
        }
    };
    let curve = Curve::new(CURVE.map(point).to_vec()).expect("a curve of our own");
    let write = Price::milli(WRITE_MILLI).expect("a price of our own");
    let costs = CostModel::new(write, Price::READ);
    DeviceModel::new(costs, curve, LATENCY_RESERVE_PERMILLE)
}

/// Returns target number `at`.
pub fn node(at: u32) -> Node {
    Node {
        domain: DomainId(at / DOMAIN_NODES),
        bytes: NODE_BYTES,
        bandwidth: NODE_BANDWIDTH,
        model: 0,
    }
}

/// Returns the arrivals of `volumes` volumes, and then `events` events: of ten, one grows a volume,
/// and the rest are arrivals and ends in equal parts.
pub fn events(volumes: u32, events: u32, seed: u64) -> Vec<Event> {
    let mut prng = Prng::from_seed(seed);
    let mut live: Vec<(VolumeId, Volume)> = Vec::new();
    let mut next = 0;
    let mut list = Vec::new();
    for at in 0..u64::from(volumes) + u64::from(events) {
        let is_start = at < u64::from(volumes);
        let index = usize::try_from(prng.below(live.len() as u64)).unwrap_or_default();
        let event = match prng.below(20) {
            0..2 if !is_start && !live.is_empty() => {
                let (id, volume) = &mut live[index];
                volume.bytes += volume.bytes / 100 * (10 + prng.below(41));
                Event::Growth(*id, *volume)
            }
            2..11 if !is_start && !live.is_empty() => Event::End(live.swap_remove(index).0),
            _ => {
                let arrival = (VolumeId(next), volume(&mut prng));
                next += 1;
                live.push(arrival);
                Event::Arrival(arrival.0, arrival.1)
            }
        };
        list.push(event);
    }
    list
}

fn volume(prng: &mut Prng) -> Volume {
    let mut percent = prng.below(100);
    let mut kinds = KINDS.iter();
    let kind = kinds.find(|kind| {
        let is_it = percent < kind.percent;
        percent = percent.saturating_sub(kind.percent);
        is_it
    });
    let kind = kind.unwrap_or(&KINDS[0]);
    let bytes = octaves(prng, kind.bytes);
    let rate = octaves(prng, kind.rate);
    let demand = match kind.latency_us {
        Some(latency_us) => Demand::Slo(Slo {
            percentile: Percentile::P95,
            latency: Nanos::from_micros(latency_us),
            iops: rate,
            read_permille: 10 * between(prng, kind.read_percent),
            request_bytes: *pick(prng, kind.request_bytes),
        }),
        None => Demand::Floor(TokenRate(rate)),
    };
    Volume {
        bytes,
        demand,
        legs: 1,
    }
}

fn octaves(prng: &mut Prng, (low, octaves): (u64, u32)) -> u64 {
    let base = low << prng.below(octaves.into());
    base + prng.below(base)
}

fn between(prng: &mut Prng, (low, high): (u16, u16)) -> u16 {
    let offset = prng.below(u64::from(high - low) + 1);
    low + u16::try_from(offset).unwrap_or_default()
}

fn pick<'a, T>(prng: &mut Prng, from: &'a [T]) -> &'a T {
    &from[usize::try_from(prng.below(from.len() as u64)).unwrap_or_default()]
}
