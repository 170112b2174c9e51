//! `switchyard sim validate`: the same on this machine and in the model, side by side.
//!
//! Target on one processor, applications on another: L alone, T alone, and both, for each baseline.

use super::calibrate;
use super::machine::{AppReport, LoadApp, LoadReport, load};
use crate::args::ValidateArgs;
use crate::cmd::child::{RAM_BYTES, Target};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result};
use base::Nanos;
use base::units::CoreId;
use serde::Serialize;
use sim::model::{self, AppSpec, Config, Costs, Report, Topology};
use std::fmt;
use std::time::Duration;
use switch::Class;
use switch::knobs::Preset;

/// A prediction within this share of what was measured is good.
const GOOD: f64 = 0.30;

/// What a T-app asks for.
const T_BYTES: u32 = 65_536;
const T_DEPTH: u32 = 16;

/// What is compared where nobody says.
const PRESETS: [Preset; 4] = [
    Preset::Switchyard,
    Preset::Linux,
    Preset::NvmeTcp,
    Preset::Poll,
];

/// Which applications run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apps {
    Latency,
    Throughput,
    Both,
}

impl Apps {
    const ALL: [Self; 3] = [Self::Latency, Self::Throughput, Self::Both];

    const fn name(self) -> &'static str {
        match self {
            Self::Latency => "L alone",
            Self::Throughput => "T alone",
            Self::Both => "L and T",
        }
    }

    const fn counts(self) -> (usize, usize) {
        match self {
            Self::Latency => (1, 0),
            Self::Throughput => (0, 1),
            Self::Both => (1, 1),
        }
    }
}

/// One number, predicted and measured.
#[derive(Debug, Serialize)]
struct Comparison {
    preset: String,
    apps: &'static str,
    what: &'static str,
    predicted: f64,
    measured: f64,
    /// By how much the prediction is too high, as a share of what was measured.
    relative_error: f64,
    good: bool,
}

/// Numbers of one case.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    l_avg_us: f64,
    l_p50_us: f64,
    l_p99_us: f64,
    t_gbps: f64,
}

/// Measures, simulates, and prints both.
pub(super) fn run(args: &ValidateArgs, output: Output) -> Result<Outcome> {
    let cores = calibrate::two(&args.cores)?;
    let costs = match &args.costs {
        Some(path) => super::costs(Some(path))?,
        None => calibrate::measure(cores, output)?,
    };
    let presets = if args.baselines.is_empty() {
        &PRESETS[..]
    } else {
        &args.baselines
    };
    let mut rows = Vec::new();
    for &preset in presets {
        for apps in Apps::ALL {
            output.note(format_args!("{preset}, {}", apps.name()));
            let measured = measured(preset, apps, cores, args)?;
            let predicted = predicted(preset, apps, &costs)?;
            rows.extend(compare(preset, apps, predicted, measured));
        }
    }
    output.result(&rows, Table(&rows))?;
    Ok(if rows.iter().all(|row| row.good) {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

/// The median of some runs on this machine.
fn measured(
    preset: Preset,
    apps: Apps,
    [target_core, app_core]: [CoreId; 2],
    args: &ValidateArgs,
) -> Result<Numbers> {
    let name = preset.to_string();
    let knobs: &[&str] = &["--baseline", &name];
    let target = Target::start(&[target_core.0], RAM_BYTES, knobs)?;
    let mut runs = Vec::new();
    for _ in 0..args.runs {
        let report = load(&target, &load_apps(apps, app_core), args.seconds, knobs)?;
        runs.push(Numbers::measured(&report));
    }
    Ok(Numbers::median(&runs))
}

fn load_apps(apps: Apps, core: CoreId) -> Vec<LoadApp> {
    let (latency, throughput) = apps.counts();
    let l = LoadApp {
        name: "l",
        class: Some(Class::Latency),
        bytes: 4096,
        depth: 1,
        core: core.0,
    };
    let t = LoadApp {
        name: "t",
        class: Some(Class::Throughput),
        bytes: T_BYTES,
        depth: T_DEPTH,
        core: core.0,
    };
    let l = std::iter::repeat_n(l, latency);
    l.chain(std::iter::repeat_n(t, throughput)).collect()
}

/// The same in the model.
fn predicted(preset: Preset, apps: Apps, costs: &Costs) -> Result<Numbers> {
    let (latency, throughput) = apps.counts();
    let specs = vec![
        AppSpec::latency(latency),
        AppSpec::throughput(throughput, T_BYTES, T_DEPTH),
    ];
    let mut config = Config::new(Topology::Split, preset.knobs(), specs);
    config.measured = Nanos::from(Duration::from_secs(3));
    let report = model::simulate(&config, costs).context("the model refuses the case")?;
    Ok(Numbers::predicted(&report))
}

impl Numbers {
    fn measured(report: &LoadReport) -> Self {
        let l = report.app("l").map(|app| app.latency_us);
        let gbps = |app: &AppReport| app.bytes_per_second * 8e-9;
        Self {
            l_avg_us: l.map_or(0.0, |l| l.avg),
            l_p50_us: l.map_or(0.0, |l| l.p50),
            l_p99_us: l.map_or(0.0, |l| l.p99),
            t_gbps: report.app("t").map_or(0.0, gbps),
        }
    }

    fn predicted(report: &Report) -> Self {
        let l = &report.latency.latency_us;
        Self {
            l_avg_us: l.avg,
            l_p50_us: l.p50,
            l_p99_us: l.p99,
            t_gbps: report.throughput.bytes_per_second * 8e-9,
        }
    }

    fn median(runs: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| {
            let mut numbers: Vec<_> = runs.iter().map(number).collect();
            numbers.sort_by(f64::total_cmp);
            numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
        };
        Self {
            l_avg_us: of(|run| run.l_avg_us),
            l_p50_us: of(|run| run.l_p50_us),
            l_p99_us: of(|run| run.l_p99_us),
            t_gbps: of(|run| run.t_gbps),
        }
    }
}

/// The numbers that the case has.
fn compare(preset: Preset, apps: Apps, predicted: Numbers, measured: Numbers) -> Vec<Comparison> {
    let (latency, throughput) = apps.counts();
    let rows = [
        (
            latency,
            "L average, µs",
            predicted.l_avg_us,
            measured.l_avg_us,
        ),
        (latency, "L p50, µs", predicted.l_p50_us, measured.l_p50_us),
        (latency, "L p99, µs", predicted.l_p99_us, measured.l_p99_us),
        (throughput, "T, Gbit/s", predicted.t_gbps, measured.t_gbps),
    ];
    rows.into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(_, what, predicted, measured)| {
            let relative_error = (predicted - measured) / measured.max(f64::MIN_POSITIVE);
            Comparison {
                preset: preset.to_string(),
                apps: apps.name(),
                what,
                predicted,
                measured,
                relative_error,
                good: relative_error.abs() <= GOOD,
            }
        })
        .collect()
}

/// The comparisons for people.
struct Table<'a>(&'a [Comparison]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "preset       apps     what           predicted   measured    error"
        )?;
        for row in self.0 {
            writeln!(
                f,
                "{:12} {:8} {:13} {:>10.1} {:>10.1} {:>+7.0}%{}",
                row.preset,
                row.apps,
                row.what,
                row.predicted,
                row.measured,
                row.relative_error * 100.0,
                if row.good { "" } else { "  beyond 30 %" },
            )?;
        }
        let good = self.0.iter().filter(|row| row.good).count();
        write!(f, "{good} of {} within 30 %", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_judged_by_what_was_measured() {
        let numbers = |l_avg_us| Numbers {
            l_avg_us,
            ..Numbers::default()
        };
        let rows = compare(Preset::Linux, Apps::Latency, numbers(129.0), numbers(100.0));
        assert_eq!(rows.len(), 3);
        assert!(rows[0].good);
        let rows = compare(Preset::Linux, Apps::Latency, numbers(69.0), numbers(100.0));
        assert!(!rows[0].good);
    }

    #[test]
    fn the_median_is_taken_number_by_number() {
        let run = |t_gbps, l_p50_us| Numbers {
            t_gbps,
            l_p50_us,
            ..Numbers::default()
        };
        let median = Numbers::median(&[run(1.0, 9.0), run(3.0, 7.0), run(2.0, 8.0)]);
        assert_eq!((median.t_gbps, median.l_p50_us), (2.0, 8.0));
    }
}
