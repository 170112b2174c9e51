//! The tenants' counters, by device.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::family::{Labels, by_word, counters, histogram, metrics, with};
use crate::snapshot::{Latency, ScheduledDevice, Snapshot, TenantSnapshot};
use target::{Metric, TenantStats};

const DEVICE: [Metric<ScheduledDevice>; 2] = metrics![ScheduledDevice:
    Gauge "device_tokens_per_second" "Tokens generated in a second" |d| d.tokens_per_second;
    Gauge "device_reserved_tokens_per_second"
        "Tokens per second reserved for the SLOs of latency-critical tenants"
        |d| d.reserved_tokens_per_second;
];

const TENANT: [Metric<TenantSnapshot>; 2] = metrics![TenantSnapshot:
    Gauge "tenant_reserved_tokens_per_second" "Tokens per second reserved for the tenant's SLO"
        |t| t.reserved_tokens_per_second;
    Gauge "tenant_overruns" "1 while the tenant's load is above its SLO"
        |t| t.overruns.into();
];

/// Everything about tenants.
pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    counters(encoder, DEVICE, || {
        let devices = snapshot.devices.iter();
        devices.map(|device| (vec![("device", device.name.clone())], device))
    })?;
    counters(encoder, TenantStats::metrics(), || {
        tenants(snapshot).map(|(labels, tenant)| (labels, &tenant.stats))
    })?;
    counters(encoder, TENANT, || tenants(snapshot))?;
    by_labels(snapshot, encoder)?;
    latencies(snapshot, encoder)
}

/// Counters that share a metric, told apart by a further label.
fn by_labels(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let metric = ("tenant_commands", "Commands done", None);
    by_word(encoder, metric, tenants(snapshot), "operation", |t| {
        let c = &t.stats;
        [("read", c.reads), ("write", c.writes), ("other", c.others)]
    })?;
    let metric = ("tenant_data", "Data moved by commands", Some(Unit::Bytes));
    by_word(encoder, metric, tenants(snapshot), "operation", |t| {
        let c = &t.stats;
        [("read", c.read_bytes), ("write", c.written_bytes)]
    })?;
    let metric = ("tenant_tokens", "What became of the tenant's tokens", None);
    by_word(encoder, metric, tenants(snapshot), "flow", |t| {
        let t = &t.stats;
        let moved = [
            ("earned", t.earned_milli),
            ("spent", t.spent_milli),
            ("given", t.given_milli),
            ("taken", t.taken_milli),
        ];
        // Whole tokens, as the metrics of rates have them.
        moved.map(|(flow, milli)| (flow, milli / 1000))
    })?;
    let help = "Seconds with reads, by whether they met the SLO";
    let metric = ("tenant_windows", help, None);
    by_word(encoder, metric, tenants(snapshot), "slo", |t| {
        [("met", t.windows.met), ("missed", t.windows.missed)]
    })
}

/// Every tenant of every device, with its labels.
fn tenants(snapshot: &Snapshot) -> impl Iterator<Item = (Labels, &TenantSnapshot)> {
    snapshot.devices.iter().flat_map(|device| {
        let labels = |tenant: &TenantSnapshot| {
            vec![
                ("device", device.name.clone()),
                ("tenant", tenant.name.clone()),
            ]
        };
        device.tenants.iter().map(move |t| (labels(t), t))
    })
}

fn latencies(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(
        "tenant_latency",
        "Time of the tenant's commands from dispatch to answer, and of that in the device",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    for (labels, tenant) in tenants(snapshot) {
        let all: [(&str, &str, &Latency); 4] = [
            ("read", "all", &tenant.latency.reads),
            ("other", "all", &tenant.latency.others),
            ("read", "device", &tenant.latency.device_reads),
            ("other", "device", &tenant.latency.device_others),
        ];
        for (operation, part, latency) in all {
            let labels = with(labels.clone(), "operation", operation);
            let labels = with(labels, "part", part);
            histogram(&mut metric.encode_family(&labels)?, latency)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Exposition, Scrape, render};

    #[test]
    fn a_tenant_is_told_apart_by_device_and_name() {
        let mut tenant = TenantSnapshot {
            name: "database".to_owned(),
            overruns: true,
            ..TenantSnapshot::default()
        };
        tenant.windows.missed = 2;
        tenant.stats.waiting = 3;
        tenant.stats.read_bytes = 4096;
        tenant.stats.spent_milli = 2_001_500;
        let snapshot = Snapshot {
            devices: vec![ScheduledDevice {
                name: "fast".to_owned(),
                tokens_per_second: 420_000,
                tenants: vec![tenant],
                ..ScheduledDevice::default()
            }],
            ..Snapshot::default()
        };
        let text = render(Scrape { snapshot }, Exposition::OpenMetrics);
        let who = "device=\"fast\",tenant=\"database\"";
        for line in [
            "switchyard_device_tokens_per_second{device=\"fast\"} 420000".to_owned(),
            format!("switchyard_tenant_waiting{{{who}}} 3"),
            format!("switchyard_tenant_overruns{{{who}}} 1"),
            format!("switchyard_tenant_data_bytes_total{{{who},operation=\"read\"}} 4096"),
            format!("switchyard_tenant_tokens_total{{{who},flow=\"spent\"}} 2001"),
            format!("switchyard_tenant_windows_total{{{who},slo=\"missed\"}} 2"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }
}
