//! `switchyard sim run`.

use crate::args::{Hosting, Layout, SimRunArgs};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use serde::Serialize;
use sim::model::report::ClassReport;
use sim::model::{self, AppSpec, Config, Link, Report, Topology};
use std::fmt;
use std::time::Instant;
use switch::Knobs;
use switch::knobs::Preset;

/// The simulated set-up, and the result.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    baseline: String,
    /// Knobs that were turned after it.
    knobs: Vec<String>,
    cores: usize,
    l_apps: usize,
    t_apps: usize,
    seed: u64,
    #[serde(flatten)]
    report: &'a Report,
}

/// Simulates, and prints what came out.
pub(super) fn run(args: &SimRunArgs, output: Output) -> Result<Outcome> {
    let costs = super::costs(args.costs.as_deref())?;
    let config = config(args, args.switch.knobs()?);
    let started = Instant::now();
    let report = model::simulate(&config, &costs)?;
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
        cores: args.cores,
        l_apps: args.l_apps,
        t_apps: args.t_apps,
        seed: args.seed,
        report: &report,
    };
    output.result(&result, Table(&report))?;
    output.note(format_args!(
        "{} events in {:.1?}",
        report.counters.events,
        started.elapsed()
    ));
    Ok(Outcome::Done)
}

fn config(args: &SimRunArgs, knobs: Knobs) -> Config {
    let topology = match args.layout {
        Layout::Network => Topology::Network {
            host_cores: args.cores,
            target_cores: args.cores,
            link: Link {
                bits_per_second: args.gbps * 1_000_000_000,
                ..Link::GBPS_100
            },
        },
        Layout::Split => Topology::Split,
        Layout::Shared => Topology::Shared { cores: args.cores },
    };
    let mut latency = AppSpec::latency(args.l_apps);
    latency.rate = args.l_rate;
    let mut throughput = AppSpec::throughput(args.t_apps, args.t_bytes, args.t_depth);
    throughput.write_permille = args.t_writes * 10;
    let mut config = Config::new(topology, knobs, vec![latency, throughput]);
    if let Some(hosting) = args.hosting {
        config.hosting = match hosting {
            Hosting::Worker => model::Hosting::Worker,
            Hosting::Inline => model::Hosting::Inline,
        };
    }
    config.targets = args.targets;
    config.device = base::Nanos::from_micros(args.device_us);
    config.warmup = args.warmup.into();
    config.measured = args.seconds.into();
    config.seed = args.seed;
    config
}

/// A report for people.
struct Table<'a>(&'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(
            f,
            "class        req/s   Gbit/s    avg µs    p50 µs    p99 µs  p99.9 µs"
        )?;
        for (name, class) in [("L", &report.latency), ("T", &report.throughput)] {
            row(f, name, class)?;
        }
        let cores = |shares: &[f64]| shares.iter().sum::<f64>();
        let counters = &report.counters;
        write!(
            f,
            "\nin all {:.2} Gbit/s, {:.2} Gbit/s per core; busy cores: host {:.2}, target {:.2}\n\
             caravans of {:.1} requests and {:.1} answers; {} requests steered, {} threads and {} \
             lanes moved",
            report.bytes_per_second * 8e-9,
            report.bytes_per_second_per_core * 8e-9,
            cores(&report.host_utilisation),
            cores(&report.target_utilisation),
            counters.host.requests_per_caravan(),
            counters.target.requests_per_caravan(),
            counters.steered,
            counters.moved_threads.iter().sum::<u64>(),
            counters.moved_lanes.iter().sum::<u64>(),
        )
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, class: &ClassReport) -> fmt::Result {
    let latency = &class.latency_us;
    writeln!(
        f,
        "{name:5} {:>12.0} {:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
        class.iops,
        class.bytes_per_second * 8e-9,
        latency.avg,
        latency.p50,
        latency.p99,
        latency.p999,
    )
}
