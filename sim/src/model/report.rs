//! The result of a run.

use base::Latencies;
use serde::Serialize;
use std::fmt;

/// Result of a run. Two runs with the same configuration, costs and seed give equal results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelReport {
    /// Measured time in simulated seconds.
    pub seconds: f64,
    /// Requests of class `Latency`.
    pub latency: ClassReport,
    /// Requests of class `Throughput`.
    pub throughput: ClassReport,
    /// Bytes read and written per second, of both classes.
    pub bytes_per_second: f64,
    /// Busy share of each host core, from 0 to 1.
    pub host_utilisation: Vec<f64>,
    /// Busy share of each target core, from 0 to 1. With one machine the cores are the same.
    pub target_utilisation: Vec<f64>,
    /// Bytes per second and busy core of the busier side.
    pub bytes_per_second_per_core: f64,
    /// Counters of the switch, including warm-up and end.
    pub counters: Counters,
}

/// The result of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Completed requests.
    pub requests: u64,
    /// Completed requests per second.
    pub iops: f64,
    /// Bytes of these per second.
    pub bytes_per_second: f64,
    /// Latency from the (intended) start to the completion.
    pub latency_us: Latency,
    /// Latency distribution with three significant digits, for drawing: an upper bound in µs, and
    /// the share of requests up to it.
    pub distribution: Vec<(f64, f64)>,
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub avg: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// Counters of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Requests issued by applications.
    pub issued: u64,
    /// Requests completed to applications; equal to `issued` at the end.
    pub completed: u64,
    /// Requests sent by their application's thread through a direct lane.
    pub direct: u64,
    /// Host caravans, and the reasons of their sending.
    pub host: Caravans,
    /// Target caravans, and the reasons of their sending.
    pub target: Caravans,
    /// Requests steered to another core.
    pub steered: u64,
    /// Requests from an overloaded core while every other core was overloaded, too.
    pub nowhere: u64,
    /// Application threads moved, by class: L, T.
    pub moved_threads: [u64; 2],
    /// Lanes moved on the target, by class: L, T.
    pub moved_lanes: [u64; 2],
    /// Packets sent by each lane, from the host and from the target.
    pub lane_packets: Vec<(u64, u64)>,
    /// Quanta granted by a floor, on both sides.
    pub floor_quanta: u64,
    /// Maximum whole quanta of T that an L request waited for, on both sides, beyond the quantum in
    /// progress at its arrival.
    pub quanta_waited_max: u64,
    /// Steps of the simulation.
    pub events: u64,
}

/// Caravans of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caravans {
    /// Number of caravans.
    pub caravans: u64,
    /// Requests (or answers) in them.
    pub requests: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Caravans with 1, 2–3, 4–7 … requests.
    pub sizes: Vec<u64>,
    /// Caravans by the reason of their sending.
    pub reasons: Vec<(&'static str, u64)>,
}

impl Caravans {
    pub(super) fn of(counters: &switch::doorbell::DoorbellCounters) -> Self {
        let reasons = switch::doorbell::Reason::ALL
            .into_iter()
            .map(|reason| (reason.name(), counters.rings[reason.index()]))
            .filter(|(_, count)| *count > 0)
            .collect();
        Self {
            caravans: counters.sizes.caravans(),
            requests: counters.requests,
            bytes: counters.bytes,
            sizes: counters.sizes.buckets().to_vec(),
            reasons,
        }
    }

    /// Mean requests per caravan.
    #[must_use]
    pub fn requests_per_caravan(&self) -> f64 {
        self.requests as f64 / self.caravans.max(1) as f64
    }
}

impl ClassReport {
    pub(super) fn of(latencies: &Latencies, bytes: u64, seconds: f64) -> Self {
        let requests = latencies.count();
        Self {
            requests,
            iops: requests as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            latency_us: Latency::of(latencies),
            distribution: latencies.distribution(),
        }
    }
}

impl Latency {
    fn of(latencies: &Latencies) -> Self {
        let at = |quantile| latencies.quantile_us(quantile);
        Self {
            avg: latencies.mean_us(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: latencies.max_us(),
        }
    }
}

/// Prints a table of the classes, and a summary of the counters.
impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "class        req/s   Gbit/s    avg µs    p50 µs    p99 µs  p99.9 µs"
        )?;
        for (name, class) in [("L", &self.latency), ("T", &self.throughput)] {
            row(f, name, class)?;
        }
        let cores = |shares: &[f64]| shares.iter().sum::<f64>();
        let counters = &self.counters;
        write!(
            f,
            "\nin all {:.2} Gbit/s, {:.2} Gbit/s per core; busy cores: host {:.2}, target {:.2}\n\
             caravans of {:.1} requests and {:.1} answers; {} requests steered, {} threads and {} \
             lanes moved",
            self.bytes_per_second * 8e-9,
            self.bytes_per_second_per_core * 8e-9,
            cores(&self.host_utilisation),
            cores(&self.target_utilisation),
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
