//! A [`Snapshot`] as Prometheus reads it: text with help and type of each metric. Nothing is kept between two scrapes; counting happens on the cores.

mod caches;
mod exposition;
pub mod family;
mod limits;
mod switch;
mod tenants;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::snapshot::{ControllerSnapshot, CoreSnapshot, CoreStats, NamespaceSnapshot, Snapshot};
pub(crate) use exposition::Exposition;
use family::{Labels, counters, histogram, metrics, uptime, with};
pub use limits::encode as encode_limits;
use target::{Metric, OperationSnapshot};

/// The metrics as text of this format.
pub(crate) fn render(metrics: impl Collector, format: Exposition) -> String {
    let mut registry = Registry::with_prefix("switchyard");
    registry.register_collector(Box::new(metrics));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("writing to a string does not fail");
    format.convert(out)
}

/// The metrics of a target.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) snapshot: Snapshot,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        target(&self.snapshot, &mut encoder)?;
        cores(&self.snapshot, &mut encoder)?;
        namespaces(&self.snapshot, &mut encoder)?;
        controllers(&self.snapshot, &mut encoder)?;
        caches::encode(&self.snapshot, &mut encoder)?;
        limits::encode(&self.snapshot, &mut encoder)?;
        tenants::encode(&self.snapshot, &mut encoder)?;
        switch::encode(&self.snapshot, &mut encoder)
    }
}

const TARGET: [Metric<Snapshot>; 8] = metrics![Snapshot:
    Gauge "discovery_generation" "Generation counter of the discovery log page"
        |s| s.discovery_generation;
    Gauge "connections" "Open connections" |s| s.connections.open;
    Counter "connections_accepted" "Connections accepted" |s| s.connections.accepted;
    Counter "connections_refused" "Connections refused because there were too many"
        |s| s.connections.refused;
    Counter "protocol_errors" "Connections ended because the peer broke the protocol"
        |s| s.connections.protocol_errors;
    Counter "terminated_by_host" "Connections ended by a termination request of the host"
        |s| s.connections.terminated_by_host;
    Counter "digest_errors" "Header and data digests that were wrong"
        |s| s.connections.digest_errors;
    Counter "keep_alive_expired" "Controllers given up because their host was silent"
        |s| s.connections.keep_alive_expired;
];

const BUSY: [Metric<CoreSnapshot>; 1] = metrics![CoreSnapshot:
    Duration "core_busy" "Processor time used by the core's thread" |core| core.busy_ns;
];

const SIZE: [Metric<NamespaceSnapshot>; 1] = metrics![NamespaceSnapshot:
    Gauge "namespace_size_bytes" "Size of the namespace" |namespace| namespace.size_bytes;
];

const OPERATION: [Metric<OperationSnapshot>; 3] = metrics![OperationSnapshot:
    Counter "namespace_commands" "Commands completed" |o| o.completed;
    Counter "namespace_errors" "Commands completed with an error" |o| o.errors;
    Counter "namespace_data_bytes" "Data moved by commands" |o| o.bytes;
];

const CONTROLLER: [Metric<ControllerSnapshot>; 1] = metrics![ControllerSnapshot:
    Gauge "controller_io_queues" "Open I/O queues of the controller"
        |controller| controller.io_queues.len() as u64;
];

fn target(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    uptime(snapshot, encoder, "Time since the target's start")?;
    counters(encoder, TARGET, || [(Labels::new(), snapshot)])
}

fn cores(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let cores = || {
        let cores = snapshot.cores.iter();
        cores.map(|core| (vec![("core", core.core.to_string())], core))
    };
    counters(encoder, CoreStats::metrics(), || {
        cores().map(|(labels, core)| (labels, &core.stats))
    })?;
    counters(encoder, BUSY, cores)
}

fn namespace_labels(namespace: &NamespaceSnapshot) -> Labels {
    vec![
        ("nqn", namespace.nqn.clone()),
        ("nsid", namespace.namespace.nsid.to_string()),
        ("device", namespace.device.clone()),
    ]
}

/// Each namespace's counters with their labels.
fn by_operation(snapshot: &Snapshot) -> impl Iterator<Item = (Labels, &OperationSnapshot)> {
    snapshot.namespaces.iter().flat_map(|namespace| {
        let operations = namespace.namespace.operations();
        operations.map(|(operation, counters)| {
            let labels = with(namespace_labels(namespace), "operation", operation);
            (labels, counters)
        })
    })
}

fn namespaces(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    counters(encoder, SIZE, || {
        snapshot.namespaces.iter().map(|n| (namespace_labels(n), n))
    })?;
    counters(encoder, OPERATION, || by_operation(snapshot))?;
    let mut metric = encoder.encode_descriptor(
        "namespace_latency",
        "Time from a command's dispatch until its answer is queued, in steps of a turn of the loop",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    for (labels, counters) in by_operation(snapshot) {
        histogram(&mut metric.encode_family(&labels)?, &counters.latency)?;
    }
    Ok(())
}

fn controllers(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    counters(encoder, CONTROLLER, || {
        snapshot.controllers.iter().map(|controller| {
            let labels = vec![
                ("nqn", controller.nqn.clone()),
                ("host", host_name(&controller.host_nqn)),
                ("cntlid", controller.id.to_string()),
                ("identity", controller.identity.to_string()),
            ];
            (labels, controller)
        })
    })
}

/// Returns the name of a host as metrics show it.
fn host_name(name: &str) -> String {
    if name.is_empty() { "(none)" } else { name }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{CacheSnapshot, LimitedSnapshot, UsageSnapshot};
    use target::{ControllerKind, LATENCY_BOUNDS_NS};

    fn snapshot() -> Scrape {
        let mut core = CoreSnapshot {
            core: 2,
            busy_ns: 250_000_000,
            ..CoreSnapshot::default()
        };
        core.stats.sent_bytes = 4_096;
        core.stats.work_ns = 125_000_000;
        let mut namespace = NamespaceSnapshot {
            nqn: "nqn.2026-11.com.example:a".to_owned(),
            device: "fast".to_owned(),
            ..NamespaceSnapshot::default()
        };
        namespace.namespace.nsid = 1;
        let reads = &mut namespace.namespace.reads;
        reads.completed = 10;
        reads.errors = 1;
        reads.bytes = 40_960;
        reads.latency.buckets[0] = 6;
        reads.latency.buckets[3] = 3;
        reads.latency.buckets[LATENCY_BOUNDS_NS.len()] = 1;
        reads.latency.sum_ns = 500_000;
        let snapshot = Snapshot {
            uptime_ms: 1_500,
            discovery_generation: 3,
            usage: vec![UsageSnapshot {
                limit: "send_lists".to_owned(),
                core: Some(2),
                used: 5,
                max: 1_024,
            }],
            limited: vec![LimitedSnapshot {
                limit: "controllers_per_host".to_owned(),
                count: 6,
            }],
            cores: vec![core],
            namespaces: vec![namespace],
            caches: vec![CacheSnapshot {
                device: "fast".to_owned(),
                counters: block::CacheSnapshot {
                    hits: 4,
                    dirty: 2,
                    ..block::CacheSnapshot::default()
                },
            }],
            controllers: vec![ControllerSnapshot {
                id: 7,
                kind: ControllerKind::Io,
                nqn: "nqn.2026-11.com.example:a".to_owned(),
                host_nqn: "nqn.2026-11.com.example:\"h\\\n".to_owned(),
                host_id: String::new(),
                identity: target::Authentication::default(),
                peer: ([127, 0, 0, 1], 4420).into(),
                io_queues: Vec::new(),
                errors: 0,
            }],
            ..Snapshot::default()
        };
        Scrape { snapshot }
    }

    #[test]
    fn every_metric_has_its_help_type_unit_and_values() {
        let text = render(snapshot(), Exposition::OpenMetrics);
        let read =
            "nqn=\"nqn.2026-11.com.example:a\",nsid=\"1\",device=\"fast\",operation=\"read\"";
        for line in [
            "# HELP switchyard_core_sent_bytes Bytes sent".to_owned(),
            "# TYPE switchyard_core_sent_bytes counter".to_owned(),
            "# UNIT switchyard_core_sent_bytes bytes".to_owned(),
            "switchyard_core_sent_bytes_total{core=\"2\"} 4096".to_owned(),
            "switchyard_core_busy_seconds_total{core=\"2\"} 0.25".to_owned(),
            "switchyard_core_work_seconds_total{core=\"2\"} 0.125".to_owned(),
            "# HELP switchyard_core_work_seconds Time during which the core had work".to_owned(),
            "switchyard_uptime_seconds 1.5".to_owned(),
            "switchyard_limited_total{limit=\"controllers_per_host\"} 6".to_owned(),
            "switchyard_limit_used{limit=\"send_lists\",core=\"2\"} 5".to_owned(),
            "switchyard_limit_max{limit=\"send_lists\",core=\"2\"} 1024".to_owned(),
            "switchyard_discovery_generation 3".to_owned(),
            "switchyard_cache_hits_total{device=\"fast\"} 4".to_owned(),
            "switchyard_cache_dirty{device=\"fast\"} 2".to_owned(),
            format!("switchyard_namespace_commands_total{{{read}}} 10"),
            format!("switchyard_namespace_errors_total{{{read}}} 1"),
            format!("switchyard_namespace_data_bytes_total{{{read}}} 40960"),
            "# TYPE switchyard_namespace_latency_seconds histogram".to_owned(),
            format!("switchyard_namespace_latency_seconds_count{{{read}}} 10"),
            format!("switchyard_namespace_latency_seconds_sum{{{read}}} 0.0005"),
            format!("switchyard_namespace_latency_seconds_bucket{{le=\"0.00001\",{read}}} 6"),
            format!("switchyard_namespace_latency_seconds_bucket{{le=\"0.0001\",{read}}} 9"),
            format!("switchyard_namespace_latency_seconds_bucket{{le=\"+Inf\",{read}}} 10"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_host_cannot_write_lines_of_its_own() {
        let text = render(snapshot(), Exposition::OpenMetrics);
        let escaped = r#"host="nqn.2026-11.com.example:\"h\\\n",cntlid="7",identity="claimed""#;
        assert!(text.contains(escaped), "{text}");
    }
}
