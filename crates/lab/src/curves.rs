//! Plots a calibration: read latency of each kind of load over requests, as in the paper's Fig. 1,
//! and next to it over tokens, where the curves coincide, as in its Fig. 3.

use crate::figure::plot::xy::{Diagram, Sheet};
use anyhow::{Context as _, Result};
use clap::Args;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Latencies are shown up to this multiple of the highest one that the fit compared.
const ROOM: f64 = 1.25;

/// Draw the curves of a calibration
///
/// Two diagrams of read latency for each measured kind of load: over requests per second, and over
/// tokens per second. With a good cost model the curves over tokens coincide.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard calibrate flash:A:1G --virtual --json >a.json
  lab curves a.json --output a.svg

Exit codes: 0 success, 2 error")]
pub struct CurvesArgs {
    /// Output of `switchyard calibrate --json`
    #[arg(value_name = "CALIBRATION")]
    pub calibration: PathBuf,
    /// SVG file to write
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
}

/// The drawn part of a calibration.
#[derive(Deserialize)]
struct Calibration {
    write_tokens: f64,
    read_only_read_tokens: f64,
    compared_us: Vec<f64>,
    curve: Vec<OfCurve>,
    measured: Vec<DrawnLoad>,
}

/// A point of the model's curve.
#[derive(Deserialize)]
struct OfCurve {
    tokens_per_second: f64,
    p95_us: f64,
}

/// A measured load.
#[derive(Deserialize)]
struct DrawnLoad {
    read_permille: u16,
    request_bytes: u32,
    achieved_iops: f64,
    tokens_per_second: f64,
    p95_us: f64,
}

impl DrawnLoad {
    /// Name of the kind of load in the legend.
    fn kind(&self) -> String {
        let percent = f64::from(self.read_permille) / 10.0;
        match self.request_bytes {
            4096 => format!("{percent} % reads"),
            bytes => format!("{percent} %, {} KiB", f64::from(bytes) / 1024.0),
        }
    }
}

/// Returns an SVG picture of the calibration in a file; the title is the file's name.
///
/// # Errors
/// A file that cannot be read or is no calibration; a picture that cannot be drawn.
pub fn svg(path: &Path) -> Result<String> {
    let unusable = || {
        format!(
            "{} is not the output of `switchyard calibrate --json`",
            path.display()
        )
    };
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let calibration: Calibration = serde_json::from_str(&text).with_context(unusable)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    calibration.sheet(&name).svg()
}

impl Calibration {
    fn sheet(&self, name: &str) -> Sheet {
        let mut legend: Vec<String> = self.measured.iter().map(DrawnLoad::kind).collect();
        legend.dedup();
        let curves = |x: fn(&DrawnLoad) -> f64| -> Vec<Vec<(f64, f64)>> {
            let of = |kind: &String| {
                let loads = self.measured.iter().filter(|load| load.kind() == *kind);
                loads.map(|load| (x(load) / 1e3, load.p95_us)).collect()
            };
            legend.iter().map(of).collect()
        };
        let requests = curves(|load| load.achieved_iops);
        let mut tokens = curves(|load| load.tokens_per_second);
        let model = self.curve.iter();
        tokens.push(
            model
                .map(|point| (point.tokens_per_second / 1e3, point.p95_us))
                .collect(),
        );
        legend.push("model".to_owned());
        let diagram = |x: &str, curves| Diagram {
            x: x.to_owned(),
            y: "p95 of reads (µs)".to_owned(),
            top: self.compared_us.last().unwrap_or(&0.0) * ROOM,
            curves,
        };
        Sheet {
            title: format!("{name}: read latency by load"),
            note: format!(
                "a write costs {:.2} tokens, a read in a read-only load {:.2}",
                self.write_tokens, self.read_only_read_tokens
            ),
            legend,
            last_is_black: true,
            diagrams: vec![
                diagram("Requests (1000/s)", requests),
                diagram("Tokens (1000/s)", tokens),
            ],
        }
    }
}
