//! `lab sim validate`: compares runs on this machine with the same runs in the model.
//!
//! Target on one processor, applications on another: L alone, T alone with large requests and with
//! many small ones, and L with T, for each baseline.

use super::calibrate::{self, Calibration};
use crate::Note;
use crate::figure::{Disturbance, Disturbances, ProcessorTime, System, TRIES_MAX, Workload};
use crate::process::{RAM_BYTES, Target, WARM_UP, load};
use ::load::{Cores, LoadReport, Machine, RunSummary, measured_seconds};
use anyhow::{Context as _, Result};
use base::Nanos;
use base::units::CoreId;
use clap::Args;
use serde::Serialize;
use sim::model::{self, AppSpec, Config, Costs, Topology};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use switch::Class;
use switch::knobs::Preset;

/// Compare the simulator with measurements on this machine
///
/// Measures a target on one CPU with L-apps and T-apps (latency and throughput applications) on
/// another, and simulates the same cases.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim validate
  lab sim validate --costs costs.toml --seconds 5 --runs 5 --json

Exit codes: 0 all predictions within 30 %, 1 a prediction off by more, 2 error")]
pub struct ValidateArgs {
    /// Costs file, written by `lab sim calibrate` [default: measured in each round]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Number of rounds over all cases; the median of the errors counts
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=99))]
    pub runs: u8,
    /// Most attempts per run: a run is repeated while other processes or the hypervisor use the
    /// CPUs; the least disturbed attempt counts
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(TRIES_MAX)))]
    pub tries: u8,
    /// Preset to compare (repeatable) [default: switchyard, linux, nvme-tcp and poll]
    #[arg(long = "baseline", value_name = "NAME")]
    pub baselines: Vec<Preset>,
    /// CPU of the target, CPU of the applications
    #[arg(long, value_name = "A,B", default_value = "0,1")]
    pub cores: Cores,
}

/// A prediction within this relative error is good.
const GOOD: f64 = 0.30;

/// Request bytes and depth of a T-app with large requests.
const LARGE: (u32, u32) = (65_536, 16);
/// The same of a T-app with many small requests, which share sends.
const SMALL: (u32, u32) = (4_096, 128);

/// Presets that are compared by default.
const PRESETS: [Preset; 4] = [
    Preset::Switchyard,
    Preset::Linux,
    Preset::NvmeTcp,
    Preset::Poll,
];

base::named! {
    /// The running applications.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Apps {
        Latency = "L alone",
        Throughput = "T alone",
        Small = "small T",
        Both = "L and T",
    }
}

impl Apps {
    const fn counts(self) -> (u32, u32) {
        match self {
            Self::Latency => (1, 0),
            Self::Throughput | Self::Small => (0, 1),
            Self::Both => (1, 1),
        }
    }

    /// Request bytes and depth of a T-app.
    const fn throughput(self) -> (u32, u32) {
        match self {
            Self::Small => SMALL,
            Self::Latency | Self::Throughput | Self::Both => LARGE,
        }
    }
}

/// One number, predicted and measured.
#[derive(Debug, Serialize)]
struct Comparison {
    preset: String,
    apps: &'static str,
    what: &'static str,
    predicted: RunSummary,
    measured: RunSummary,
    /// Relative error of a round's prediction: positive if it is too high.
    relative_error: RunSummary,
    /// The median error is small enough.
    good: bool,
}

/// Every comparison of the model with the machine.
#[derive(Debug, Serialize)]
pub struct ValidateReport {
    comparisons: Vec<Comparison>,
    rounds: u8,
    seconds: f64,
    disturbances: Disturbances,
    machine: Machine,
}

/// Names of a run's numbers.
const NUMBERS: [&str; 4] = ["L average, µs", "L p50, µs", "L p99, µs", "T, Gbit/s"];

/// The numbers of a run; zero for applications that did not run.
type Numbers = [f64; NUMBERS.len()];

/// A case: a preset with some applications.
#[derive(Debug)]
struct Case {
    preset: Preset,
    apps: Apps,
    /// By round.
    predicted: Vec<Numbers>,
    measured: Vec<Numbers>,
}

/// Measures, simulates, and compares. The costs are the given ones, or are measured between the
/// cases.
///
/// # Errors
/// Fewer than two processors, and runs that fail.
pub fn validate(
    args: &ValidateArgs,
    given: Option<Costs>,
    note: Note<'_>,
) -> Result<ValidateReport> {
    let cores = calibrate::two(&args.cores)?;
    let presets = if args.baselines.is_empty() {
        &PRESETS[..]
    } else {
        &args.baselines
    };
    let case = |preset, apps| Case {
        preset,
        apps,
        predicted: Vec::new(),
        measured: Vec::new(),
    };
    let cases = presets
        .iter()
        .flat_map(|&preset| Apps::ALL.map(|apps| case(preset, apps)));
    let mut cases: Vec<_> = cases.collect();
    let mut disturbances = Disturbances::default();
    for round in 1..=args.runs {
        // The machine's costs vary over minutes, so they are measured between the runs that they
        // are to predict.
        let mut calibration = Calibration::new(cores);
        for case in &mut cases {
            let (preset, apps) = (case.preset, case.apps);
            note(format_args!("round {round}: {preset}, {}", apps.name()));
            if given.is_none() {
                calibration.pass()?;
            }
            let measured = disturbances.least(args.tries, || measured(preset, apps, cores, args));
            case.measured.push(measured?);
        }
        let costs = match &given {
            Some(costs) => costs.clone(),
            None => calibration.costs()?,
        };
        for case in &mut cases {
            let predicted = predicted(case.preset, case.apps, &costs)?;
            case.predicted.push(predicted);
        }
    }
    Ok(ValidateReport {
        comparisons: cases.iter().flat_map(compare).collect(),
        rounds: args.runs,
        seconds: args.seconds.as_secs_f64(),
        disturbances,
        machine: Machine::look(),
    })
}

impl ValidateReport {
    /// Returns true if every prediction is within the bound.
    #[must_use]
    pub fn good(&self) -> bool {
        self.comparisons.iter().all(|row| row.good)
    }
}

/// Runs the case on this machine; returns the numbers and the disturbance.
fn measured(
    preset: Preset,
    apps: Apps,
    [target_core, app_core]: [CoreId; 2],
    args: &ValidateArgs,
) -> Result<(Numbers, Disturbance)> {
    let name = preset.to_string();
    let target = Target::start(&[target_core.0], RAM_BYTES, &["--baseline", &name])?;
    let system = System {
        turned: &["--prefill"],
        ..System::of("machine", preset)
    };
    let before = ProcessorTime::now()?;
    let workloads = workloads(apps, app_core);
    let report = load(&target, &system, workloads, args.seconds)?;
    let disturbance = Disturbance::since(&before)?;
    Ok((numbers(&report), disturbance))
}

fn workloads(apps: Apps, core: CoreId) -> Vec<Workload> {
    let (latency, throughput) = apps.counts();
    let (bytes, depth) = apps.throughput();
    let l = Workload::latency(latency);
    let t = Workload {
        class: Class::Throughput,
        bytes,
        depth,
        ..Workload::latency(throughput)
    };
    let there = [l, t].into_iter().filter(|app| app.count > 0);
    there.map(|app| app.on(core.0)).collect()
}

/// Runs the same case in the model.
fn predicted(preset: Preset, apps: Apps, costs: &Costs) -> Result<Numbers> {
    let (latency, throughput) = apps.counts();
    let (bytes, depth) = apps.throughput();
    let specs = vec![
        AppSpec::latency(latency as usize),
        AppSpec::throughput(throughput as usize, bytes, depth),
    ];
    let mut config = Config::new(Topology::Split, preset.knobs(), specs);
    // As long as the load's warm-up.
    config.warmup = Nanos::from(WARM_UP);
    config.measured = Nanos::from(Duration::from_secs(3));
    let report = model::simulate(&config, costs).context("the model refuses the case")?;
    let l = &report.latency.latency_us;
    let t = report.throughput.bytes_per_second;
    Ok([l.avg, l.p50, l.p99, t * 8e-9])
}

/// The numbers of a run on this machine.
fn numbers(report: &LoadReport) -> Numbers {
    let app = |class: Class| {
        let mut apps = report.apps.iter();
        apps.find(|app| app.name.starts_with(class.properties().letter))
    };
    let l = app(Class::Latency).map(|app| app.latency_us);
    let l = l.unwrap_or_default();
    let t = app(Class::Throughput).map_or(0.0, |app| app.bytes_per_second);
    [l.avg, l.p50, l.p99, t * 8e-9]
}

/// Returns the numbers that apply to the case.
fn compare(case: &Case) -> Vec<Comparison> {
    let (latency, throughput) = case.apps.counts();
    let counts = [latency, latency, latency, throughput];
    let there = (0..NUMBERS.len()).filter(|&place| counts[place] > 0);
    let comparison = |place: usize| {
        let number = |run: &Numbers| run[place];
        let predicted: Vec<_> = case.predicted.iter().map(number).collect();
        let measured: Vec<_> = case.measured.iter().map(number).collect();
        let rounds = predicted.iter().zip(&measured);
        let errors: Vec<_> = rounds
            .map(|(predicted, measured)| (predicted - measured) / measured.max(f64::MIN_POSITIVE))
            .collect();
        let spread = |numbers: &[f64]| RunSummary::of(numbers).expect("at least one round");
        let relative_error = spread(&errors);
        Comparison {
            preset: case.preset.to_string(),
            apps: case.apps.name(),
            what: NUMBERS[place],
            predicted: spread(&predicted),
            measured: spread(&measured),
            relative_error,
            good: relative_error.median.abs() <= GOOD,
        }
    };
    there.map(comparison).collect()
}

impl fmt::Display for ValidateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "preset",
            "apps",
            "what",
            "predicted",
            "measured",
            "spread",
            "error",
            "spread",
            "",
        ];
        let percent = |error: f64| format!("{:+.0}%", error * 100.0);
        let row = |row: &Comparison| {
            let error = row.relative_error;
            vec![
                row.preset.clone(),
                row.apps.to_owned(),
                row.what.to_owned(),
                format!("{:.1}", row.predicted.median),
                format!("{:.1}", row.measured.median),
                format!("{:.1}..{:.1}", row.measured.min, row.measured.max),
                percent(error.median),
                format!("{}..{}", percent(error.min), percent(error.max)),
                if row.good { "" } else { "beyond 30 %" }.to_owned(),
            ]
        };
        let rows = self.comparisons.iter().map(row);
        f.write_str(&load::aligned(&header, rows, 3))?;
        let good = self.comparisons.iter().filter(|row| row.good).count();
        write!(
            f,
            "{good} of {} within 30 %\n\
             medians of {} rounds, in each of which every case ran for {} s, on {}\n{}",
            self.comparisons.len(),
            self.rounds,
            self.seconds,
            self.machine,
            self.disturbances
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(l_avg_us: f64) -> Numbers {
        [l_avg_us, 0.0, 0.0, 0.0]
    }

    #[test]
    fn a_prediction_is_judged_by_what_was_measured_in_its_round() {
        let mut case = Case {
            preset: Preset::Linux,
            apps: Apps::Latency,
            predicted: [129.0, 10.0, 400.0].map(run).to_vec(),
            measured: [100.0, 9.0, 100.0].map(run).to_vec(),
        };
        let rows = compare(&case);
        assert_eq!(rows.len(), 3);
        assert!(rows[0].good, "{:?}", rows[0].relative_error);
        assert_eq!(
            (rows[0].predicted.median, rows[0].measured.median),
            (129.0, 100.0)
        );
        case.predicted[0] = run(69.0);
        case.predicted[1] = run(6.0);
        assert!(!compare(&case)[0].good);
    }
}
