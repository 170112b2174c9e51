//! Scenarios of I/O paths in virtual time: what a measured figure runs, by the simulator's model of
//! eight processors, as the thesis had, instead of this machine. `[Yu §6]`
//!
//! The devices are those of the measured figures, with more room; the options of the systems say
//! which path they take, and whether through a cache.

use super::measure::{Effort, Runner};
use super::sample::{AppSample, Sample};
use super::scenario::{LoadProcess, Scenario, Storage, Workload};
use anyhow::{Result, bail};
use base::Nanos;
use load::{CpuShares, Latency, PathReport};
use sim::paths::{CacheSize, Load, Machine, Mix, Pattern, Report, Setup, run};
use switch::Class;
use switch::path::PathRules;

/// Pages of the device: 16 GiB.
const DEVICE_PAGES: u64 = 1 << 22;

/// Pages of a cache: 32 MiB. Like the thesis' memory it is much smaller than the device; the
/// smaller it is, the sooner it is in the state that it stays in.
const CACHE_PAGES: usize = 8192;

const WARM_UP: Nanos = Nanos::from_millis(40);

/// Runs scenarios on such a machine.
#[derive(Debug)]
pub(super) struct Simulator(pub(super) Machine);

impl Runner for Simulator {
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        let setup = setup(scenario, self.0, effort)?;
        let report = run(&setup);
        let requests = report.requests as f64;
        let app = AppSample {
            class: Class::Throughput,
            iops: requests / effort.measured.as_secs_f64(),
            bytes_per_second: report.bytes_per_second,
            latency: Latency::default(),
            software: None,
        };
        Ok(Sample {
            apps: vec![app],
            path: Some(path_report(scenario.system.name, &report)),
            ..Sample::default()
        })
    }
}

/// The model knows commands by their pages, and no waiting from idle.
fn path_report(path: &str, report: &Report) -> PathReport {
    PathReport {
        path: path.to_owned(),
        commands: report.commands.iter().sum(),
        merged_mean: report.merged(),
        merged: (1..).zip(report.commands.iter().copied()).collect(),
        cpu: CpuShares {
            user: report.busy_percent,
            idle: 100.0 - report.busy_percent,
            ..CpuShares::default()
        },
        ..PathReport::default()
    }
}

fn setup(scenario: &Scenario, machine: Machine, effort: &Effort) -> Result<Setup> {
    let [LoadProcess { storage, apps, .. }] = &scenario.processes[..] else {
        bail!("a simulated path has one process");
    };
    let Storage::DramSsd {
        command_us,
        page_us,
    } = storage
    else {
        bail!("a simulated path has the thesis' device");
    };
    let turned = |option| scenario.system.turned.contains(&option);
    Ok(Setup {
        path: scenario.system.name.parse()?,
        rules: PathRules::default(),
        device: format!("dram-ssd+{command_us}us+{page_us}us").parse()?,
        device_pages: DEVICE_PAGES,
        machine,
        load: load_of(apps)?,
        cache: turned("--cache").then(|| CacheSize {
            context_look_up: turned("--context-look-up"),
            ..CacheSize::of(CACHE_PAGES)
        }),
        warm_up: WARM_UP,
        measured: effort.measured.into(),
        seed: effort.seed,
    })
}

/// Threads that all do the same, or of which every other one writes and the others read.
fn load_of(apps: &[Workload]) -> Result<Load> {
    let mix = match apps {
        [app] => Mix::OfRequests(u16::from(app.read_percent) * 10),
        [readers, writers]
            if (readers.read_percent, writers.read_percent) == (100, 0)
                && readers.count == writers.count =>
        {
            Mix::OfThreads
        }
        _ => bail!("simulated threads do the same, or half of them read and half write"),
    };
    if apps.iter().any(|app| (app.bytes, app.depth) != (4096, 1)) {
        bail!("a simulated thread has one request of 4 KiB at a time");
    }
    let threads = apps.iter().map(|app| app.count as usize).sum();
    let pattern = if apps[0].sequential {
        Pattern::Sequential
    } else {
        Pattern::Random
    };
    Ok(Load {
        threads,
        pattern,
        mix,
    })
}
