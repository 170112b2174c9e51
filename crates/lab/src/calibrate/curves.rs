//! A calibration as a picture: the curves of each kind of load over requests, as of the paper's
//! Fig. 1, and beside it over tokens, where they coincide, as of its Fig. 3.

use super::Calibration;
use crate::figure::plot::xy::{Diagram, Sheet};
use anyhow::Result;
use base::Nanos;
use qos::Percentile;
use qos::fit::{Kind, Measurement};

/// Latencies up to this multiple of the highest one that was compared are shown.
const ROOM: f64 = 1.25;

/// The picture as SVG, with the device's name.
///
/// # Errors
/// When it cannot be drawn.
pub fn svg(calibration: &Calibration, device: &str) -> Result<String> {
    let kinds = calibration.kinds();
    let p95 =
        |latency: [Nanos; Percentile::COUNT]| latency[Percentile::P95 as usize].0 as f64 / 1e3;
    let curves = |x: &dyn Fn(&Measurement) -> f64| -> Vec<Vec<(f64, f64)>> {
        let curve = |&kind: &Kind| {
            let points = calibration.of(kind);
            points
                .map(|point| (x(point) / 1e3, p95(point.latency)))
                .collect()
        };
        kinds.iter().map(curve).collect()
    };
    let compared = calibration.fit.latencies.last().copied();
    let top = compared.unwrap_or(Nanos::ZERO).0 as f64 / 1e3 * ROOM;
    let diagram = |x: &str, curves| Diagram {
        x: x.to_owned(),
        y: "p95 of reads (µs)".to_owned(),
        top,
        curves,
    };
    let requests = curves(&|point| point.achieved as f64);
    let mut tokens = curves(&|point| calibration.tokens_per_second(point));
    let model = calibration.fit.curve.points().iter();
    tokens.push(
        model
            .map(|point| (point.rate.0 as f64 / 1e3, p95(point.latency)))
            .collect(),
    );
    let mut legend: Vec<String> = kinds.iter().copied().map(name).collect();
    legend.push("model".to_owned());
    let tokens_of = |milli: u32| f64::from(milli) / 1e3;
    let sheet = Sheet {
        title: format!("{device}: latency of reads by load"),
        note: format!(
            "a write costs {:.2} tokens, a read among nothing but reads {:.2}",
            tokens_of(calibration.fit.write.as_milli()),
            tokens_of(calibration.fit.read_only_read.as_milli())
        ),
        legend,
        last_is_black: true,
        diagrams: vec![
            diagram("Requests (1000/s)", requests),
            diagram("Tokens (1000/s)", tokens),
        ],
    };
    sheet.svg()
}

/// Name of a kind of load in the legend.
fn name(kind: Kind) -> String {
    let percent = f64::from(kind.read_permille) / 10.0;
    if kind == Kind::unit(kind.read_permille) {
        format!("{percent} % reads")
    } else {
        format!(
            "{percent} %, {} KiB",
            f64::from(kind.request_bytes) / 1024.0
        )
    }
}
