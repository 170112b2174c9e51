//! `lab sim`: runs, calibrates and validates the performance model, and tests with injected faults.

use crate::args::{CalibrateArgs, Hosting, Layout, SimArgs, SimCommand, SimRunArgs};
use anyhow::{Result, ensure};
use cli::exit::Outcome;
use cli::output::{Output, print};
use serde::Serialize;
use sim::model::{AppSpec, Config, Link, ModelReport, Topology};
use std::time::Instant;
use switch::Knobs;
use switch::knobs::Preset;
use switchyard_lab::check::{self, CheckArgs, MutationsArgs};
use switchyard_lab::model::{self, ValidateArgs};

/// Runs the command.
///
/// # Errors
/// An impossible run, an unusable costs file, a machine that cannot be measured.
pub fn run(args: &SimArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        SimCommand::Run(args) => simulate(args, output),
        SimCommand::Check(args) => check(args, output),
        SimCommand::Mutations(args) => mutations(args, output),
        SimCommand::Calibrate(args) => calibrate(args, output),
        SimCommand::Validate(args) => validate(args, output),
    }
}

/// Runs seeds, and prints the survived faults and the failures.
fn check(args: &CheckArgs, output: Output) -> Result<Outcome> {
    let Some(report) = check::check(args, print)? else {
        return Ok(Outcome::Done);
    };
    output.result(&report, &report)?;
    Ok(Outcome::of(report.failures.is_empty()))
}

/// Enables mutations, and prints which of them were found.
fn mutations(args: &MutationsArgs, output: Output) -> Result<Outcome> {
    let report = check::mutations(args, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.complete()))
}

/// Measures the costs of this machine, and writes the costs file.
fn calibrate(args: &CalibrateArgs, output: Output) -> Result<Outcome> {
    output.check_files(&args.output)?;
    let costs = model::calibrate(&args.cores, &|text| output.note(text))?;
    let text = costs.to_toml();
    if let Some(path) = &args.output {
        output.file(path, &text)?;
    }
    if output.json {
        output.result(&costs, "")?;
    } else if args.output.is_none() {
        print(format_args!("{text}"))?;
    }
    Ok(Outcome::Done)
}

/// Compares the model with this machine, and prints both.
fn validate(args: &ValidateArgs, output: Output) -> Result<Outcome> {
    let costs = args.costs.as_deref().map(|path| model::costs(Some(path)));
    let report = model::validate(args, costs.transpose()?, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.good()))
}

/// The simulated set-up, and the result.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    baseline: String,
    /// Knobs that were changed after the preset.
    knobs: Vec<String>,
    cores: usize,
    l_apps: usize,
    t_apps: usize,
    seed: u64,
    #[serde(flatten)]
    report: &'a ModelReport,
}

/// Simulates, and prints the result.
fn simulate(args: &SimRunArgs, output: Output) -> Result<Outcome> {
    ensure!(
        args.layout != Layout::Split || args.cores.is_none(),
        "--cores: --layout split has one core per side; omit it"
    );
    ensure!(
        args.layout == Layout::Network || args.gbps.is_none(),
        "--gbps: only --layout network has a network; omit it"
    );
    let costs = model::costs(args.costs.as_deref())?;
    let config = config(args, args.switch.knobs()?);
    let started = Instant::now();
    let report = sim::model::simulate(&config, &costs)?;
    let result = Answer {
        baseline: args
            .switch
            .baseline
            .unwrap_or(Preset::Switchyard)
            .to_string(),
        knobs: args
            .switch
            .knobs
            .iter()
            .map(|change| format!("{}={}", change.key, change.value))
            .collect(),
        cores: config.host_cores(),
        l_apps: args.l_apps,
        t_apps: args.t_apps,
        seed: args.seed,
        report: &report,
    };
    output.result(&result, &report)?;
    output.note(format_args!(
        "{} events in {:.1?}",
        report.counters.events,
        started.elapsed()
    ));
    Ok(Outcome::Done)
}

fn config(args: &SimRunArgs, knobs: Knobs) -> Config {
    let cores = args.cores.unwrap_or(6);
    let topology = match args.layout {
        Layout::Network => Topology::Network {
            host_cores: cores,
            target_cores: cores,
            link: Link {
                bits_per_second: args.gbps.unwrap_or(100) * 1_000_000_000,
                ..Link::GBPS_100
            },
        },
        Layout::Split => Topology::Split,
        Layout::Shared => Topology::Shared { cores },
    };
    let mut latency = AppSpec::latency(args.l_apps);
    latency.rate = args.l_rate;
    let mut throughput = AppSpec::throughput(args.t_apps, args.t_bytes, args.t_depth);
    throughput.write_permille = args.t_writes * 10;
    let mut config = Config::new(topology, knobs, vec![latency, throughput]);
    if let Some(hosting) = args.hosting {
        config.hosting = match hosting {
            Hosting::Worker => sim::model::Hosting::Worker,
            Hosting::Inline => sim::model::Hosting::Inline,
        };
    }
    config.targets = args.targets;
    config.device = base::Nanos::from_micros(args.device_us);
    config.warmup = args.warmup.into();
    config.measured = args.seconds.into();
    config.seed = args.seed;
    config
}
