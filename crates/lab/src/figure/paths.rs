//! Scenarios of I/O paths in virtual time: the simulator's model of eight processors, as in the
//! thesis, runs the scenarios of a measured figure. `[Yu §6]`
//!
//! The devices are those of the measured figures, but larger; the systems' options select the path,
//! and whether there is a cache.

use super::measure::{Effort, Runner};
use super::sample::{AppSample, Sample};
use super::scenario::{LoadProcess, Scenario, Storage, Workload};
use anyhow::{Result, bail};
use base::{Nanos, Time};
use block::device::flash::{Access, Profile, Timing};
use load::{CpuShares, Latency, PathReport, SoftwareTime};
use sim::paths::{CacheSize, Load, Machine, Mix, Pattern, Report, Setup, run};
use switch::Class;
use switch::path::PathRules;

/// Pages of the device: 16 GiB.
const DEVICE_PAGES: u64 = 1 << 22;

/// Pages of a cache: 32 MiB. As in the thesis, it is much smaller than the device; a smaller cache
/// reaches its steady state sooner.
const CACHE_PAGES: usize = 8192;

const WARM_UP: Nanos = Nanos::from_millis(40);

/// Runs scenarios on the simulated machine.
#[derive(Debug)]
pub(super) struct Simulator(pub(super) Machine);

impl Runner for Simulator {
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        let setup = setup(scenario, self.0, effort)?;
        let report = run(&setup);
        let requests = report.requests as f64;
        let latency = Latency::of(&report.latencies);
        let device_us = device_alone_us(setup.load.pages)?;
        let app = AppSample {
            class: Class::Throughput,
            iops: requests / effort.measured.as_secs_f64(),
            bytes_per_second: report.bytes_per_second,
            latency,
            software: setup.cache.is_none().then_some(SoftwareTime {
                avg: latency.avg - device_us,
                p50: latency.p50 - device_us,
            }),
        };
        Ok(Sample {
            apps: vec![app],
            path: Some(path_report(scenario.system.name, &report)),
            ..Sample::default()
        })
    }
}

/// Returns the time of a read of `pages` pages by the device without added delay, in microseconds;
/// the added delay stands for the thesis' software.
fn device_alone_us(pages: u64) -> Result<f64> {
    let device: Profile = "dram-ssd".parse()?;
    let read = Access::Read { page: 0, pages };
    let end = Timing::new(device.parts()).finish(Time::ZERO, read);
    Ok(end.0 as f64 / 1e3)
}

/// The report of a path. The model counts commands by their pages, and has no iowait.
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
    let cached = turned("--cache");
    Ok(Setup {
        path: scenario.system.name.parse()?,
        rules: PathRules::default(),
        device: format!("dram-ssd+{command_us}us+{page_us}us").parse()?,
        device_pages: DEVICE_PAGES,
        machine,
        load: load_of(apps, cached)?,
        cache: cached.then(|| CacheSize {
            context_look_up: turned("--context-look-up"),
            ..CacheSize::of(CACHE_PAGES)
        }),
        warm_up: WARM_UP,
        measured: effort.measured.into(),
        seed: effort.seed,
    })
}

/// Identical threads, or threads of which every second one writes and the remaining ones read.
fn load_of(apps: &[Workload], cached: bool) -> Result<Load> {
    let mix = match apps {
        [app] => Mix::OfRequests(u16::from(app.read_percent) * 10),
        [readers, writers]
            if (readers.read_percent, writers.read_percent) == (100, 0)
                && readers.count == writers.count =>
        {
            Mix::OfThreads
        }
        _ => bail!("simulated threads must be identical, or half readers and half writers"),
    };
    let bytes = apps[0].bytes;
    if apps.iter().any(|app| (app.bytes, app.depth) != (bytes, 1)) {
        bail!("simulated threads must have depth 1 and one request size");
    }
    if bytes == 0 || !bytes.is_multiple_of(4096) || cached && bytes != 4096 {
        bail!("a simulated request must be whole pages, or one page with a cache");
    }
    let threads = apps.iter().map(|app| app.count as usize).sum();
    let pattern = if apps[0].sequential {
        Pattern::Sequential
    } else {
        Pattern::Random
    };
    Ok(Load {
        threads,
        pages: u64::from(bytes / 4096),
        pattern,
        mix,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

    use super::*;

    fn app(bytes: u32) -> Workload {
        Workload {
            bytes,
            ..Workload::latency(1)
        }
    }

    #[test]
    fn a_request_is_of_whole_pages_and_of_one_through_a_cache() {
        let pages = |bytes, cached| load_of(&[app(bytes)], cached).ok().map(|load| load.pages);
        assert_eq!(pages(128 << 10, false), Some(32));
        assert_eq!(pages(4096, true), Some(1));
        for (bytes, cached) in [(0, false), (6144, false), (8192, true)] {
            assert_eq!(pages(bytes, cached), None, "{bytes}");
        }
        load_of(&[app(4096), app(8192)], false).unwrap_err();
        let deep = Workload {
            depth: 2,
            ..app(4096)
        };
        load_of(&[deep], false).unwrap_err();
    }

    #[test]
    fn the_device_alone_takes_what_the_thesis_has_for_a_page() {
        assert_eq!(device_alone_us(1).unwrap(), 7.0);
        assert_eq!(device_alone_us(32).unwrap(), 188.381);
    }
}
