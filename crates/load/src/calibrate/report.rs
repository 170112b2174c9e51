//! Outcome of a calibration, as JSON and as a table.

use crate::aligned;
use qos::Percentile;
use qos::cost::Price;
use qos::fit::{Fit, Kind, Measurement};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use std::fmt;

/// A cost model, and the measurements that it was fitted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The model.
    pub fit: Fit,
    /// Measurements, by kind, each in the order of its loads.
    pub measured: Vec<Measurement>,
}

/// p95 latencies in microseconds at which rates are shown: the paper's example of an SLO, and
/// values around it.
const SHOWN_US: [u64; 5] = [200, 500, 1_000, 2_000, 5_000];

impl Calibration {
    /// The kinds of load in the order in which they were measured.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.measured.iter().map(|point| point.kind).collect();
        kinds.dedup();
        kinds
    }

    /// The loads of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Measurement> {
        self.measured.iter().filter(move |point| point.kind == kind)
    }

    /// Tokens per second of the achieved rate.
    #[must_use]
    pub fn tokens_per_second(&self, point: &Measurement) -> f64 {
        point
            .kind
            .tokens_per_second(point.achieved as f64, &self.fit)
    }

    fn loads(&self) -> String {
        let header = ["load", "IOPS", "tokens/s", "p50 µs", "p95", "p99", "p99.9"];
        let row = |point: &Measurement| {
            let micros = point
                .latency
                .map(|latency| format!("{:.1}", latency.0 as f64 / 1e3));
            let late = if point.sustained() { "" } else { " (overload)" };
            [
                format!("{}{late}", point.kind),
                point.achieved.to_string(),
                format!("{:.0}", self.tokens_per_second(point)),
            ]
            .into_iter()
            .chain(micros)
            .collect()
        };
        aligned(&header, self.measured.iter().map(row), 1)
    }
}

fn tokens(price: Price) -> String {
    format!("{:.2}", f64::from(price.as_milli()) / 1e3)
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fit {
            write,
            write_range,
            read_only_read,
            curve,
            spread_permille,
            read_only_spread_permille,
            sizes,
            ..
        } = &self.fit;
        f.write_str(&self.loads())?;
        writeln!(f, "cost of a 4 KiB write: {} tokens", tokens(*write))?;
        match write_range {
            Some((least, most)) => writeln!(
                f,
                "    {} to {} without any one of the read percentages",
                tokens(*least),
                tokens(*most)
            )?,
            None => writeln!(f, "    from the command line")?,
        }
        writeln!(
            f,
            "cost of a 4 KiB read without writes: {} tokens",
            tokens(*read_only_read)
        )?;
        let percent = |permille: u32| f64::from(permille) / 10.0;
        if let Some(spread) = spread_permille {
            write!(
                f,
                "spread of token rates at equal p95: {:.1} % for mixed loads",
                percent(*spread)
            )?;
            if let Some(alone) = read_only_spread_permille {
                write!(f, ", {:.1} % including read-only loads", percent(*alone))?;
            }
            writeln!(f)?;
        }
        for size in sizes {
            writeln!(
                f,
                "{}: cost of {:.2} requests of 4 KiB; the model assumes {}",
                size.kind,
                f64::from(size.measured_milli) / 1e3,
                size.units
            )?;
        }
        let rates = SHOWN_US.iter().filter_map(|&micros| {
            let latency = base::Nanos::from_micros(micros);
            let rate = curve.rate_for(Percentile::P95, latency).ok()?;
            Some(format!("{} at {micros} µs", rate.0))
        });
        let rates: Vec<String> = rates.collect();
        write!(f, "tokens/s by p95 latency: {}", rates.join(", "))
    }
}

/// A load, in JSON.
#[derive(Serialize)]
struct Point {
    read_permille: u16,
    request_bytes: u32,
    offered_iops: u64,
    achieved_iops: u64,
    tokens_per_second: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
}

/// Cost of a request size, in JSON.
#[derive(Serialize)]
struct Size {
    read_permille: u16,
    request_bytes: u32,
    units: u32,
    measured_units: f64,
}

/// A point of the curve, in JSON.
#[derive(Serialize)]
struct OfCurve {
    tokens_per_second: u64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
}

impl Serialize for Calibration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = |latency: base::Nanos| latency.0 as f64 / 1e3;
        let measured = |point: &Measurement| {
            let [p50_us, p95_us, p99_us, p999_us] = point.latency.map(micros);
            Point {
                read_permille: point.kind.read_permille,
                request_bytes: point.kind.request_bytes,
                offered_iops: point.offered,
                achieved_iops: point.achieved,
                tokens_per_second: self.tokens_per_second(point),
                p50_us,
                p95_us,
                p99_us,
                p999_us,
            }
        };
        let curve = self.fit.curve.points().iter().map(|point| {
            let [p50_us, p95_us, p99_us, p999_us] = point.latency.map(micros);
            OfCurve {
                tokens_per_second: point.rate.0,
                p50_us,
                p95_us,
                p99_us,
                p999_us,
            }
        });
        let sizes = self.fit.sizes.iter().map(|size| Size {
            read_permille: size.kind.read_permille,
            request_bytes: size.kind.request_bytes,
            units: size.units,
            measured_units: f64::from(size.measured_milli) / 1e3,
        });
        let tokens = |price: Price| f64::from(price.as_milli()) / 1e3;
        let range = self
            .fit
            .write_range
            .map(|(least, most)| [tokens(least), tokens(most)]);
        let mut report = serializer.serialize_struct("Calibration", 9)?;
        report.serialize_field("write_tokens", &tokens(self.fit.write))?;
        report.serialize_field("write_tokens_range", &range)?;
        report.serialize_field("read_only_read_tokens", &tokens(self.fit.read_only_read))?;
        report.serialize_field("spread_permille", &self.fit.spread_permille)?;
        report.serialize_field(
            "read_only_spread_permille",
            &self.fit.read_only_spread_permille,
        )?;
        let compared = self.fit.latencies.iter().map(|&latency| micros(latency));
        report.serialize_field("compared_us", &compared.collect::<Vec<_>>())?;
        report.serialize_field("sizes", &sizes.collect::<Vec<_>>())?;
        report.serialize_field("curve", &curve.collect::<Vec<_>>())?;
        let points: Vec<Point> = self.measured.iter().map(measured).collect();
        report.serialize_field("measured", &points)?;
        report.end()
    }
}
