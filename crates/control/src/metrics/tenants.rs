//! The tenants' counters, by device.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::family::{FamilyKind, Labels, Value, counters, family, histogram};
use crate::snapshot::{Latency, ScheduledDevice, Snapshot, TenantSnapshot};
use target::TenantStats;

/// A column of the table of devices.
type DeviceColumn = (&'static str, &'static str, fn(&ScheduledDevice) -> u64);

const DEVICE_COLUMNS: [DeviceColumn; 2] = [
    (
        "device_tokens_per_second",
        "Tokens generated in a second",
        |d| d.tokens_per_second,
    ),
    (
        "device_reserved_tokens_per_second",
        "Tokens a second that are promised to latency-critical tenants",
        |d| d.reserved_tokens_per_second,
    ),
];

/// A column of the table of tenants, in the same form.
type TenantColumn = (&'static str, &'static str, fn(&TenantSnapshot) -> u64);

const GAUGES: [TenantColumn; 2] = [
    (
        "tenant_reserved_tokens_per_second",
        "Tokens a second that the tenant's promise takes",
        |t| t.reserved_tokens_per_second,
    ),
    (
        "tenant_overruns",
        "1 while the tenant keeps asking for more than it is promised",
        |t| u64::from(t.overruns),
    ),
];

/// Everything about tenants.
pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in DEVICE_COLUMNS {
        let devices = snapshot.devices.iter().map(|device| {
            let labels = vec![("device", device.name.clone())];
            (labels, Value::Count(value(device)))
        });
        family(encoder, FamilyKind::Gauge, name, help, None, devices)?;
    }
    counters(encoder, TenantStats::metrics(), || {
        tenants(snapshot).map(|(labels, tenant)| (labels, &tenant.stats))
    })?;
    for (name, help, value) in GAUGES {
        let tenants = tenants(snapshot).map(|(labels, t)| (labels, Value::Count(value(t))));
        family(encoder, FamilyKind::Gauge, name, help, None, tenants)?;
    }
    by_labels(snapshot, encoder)?;
    latencies(snapshot, encoder)
}

/// Counters that share a metric, told apart by a further label.
fn by_labels(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    by_word(
        snapshot,
        encoder,
        ("tenant_commands", "Commands done", None),
        |t| {
            let c = &t.stats;
            let done = [("read", c.reads), ("write", c.writes), ("other", c.others)];
            word("operation", done)
        },
    )?;
    by_word(
        snapshot,
        encoder,
        ("tenant_data", "Data moved by commands", Some(Unit::Bytes)),
        |t| {
            let c = &t.stats;
            let moved = [("read", c.read_bytes), ("write", c.written_bytes)];
            word("operation", moved)
        },
    )?;
    by_word(
        snapshot,
        encoder,
        ("tenant_tokens", "What became of the tenant's tokens", None),
        |t| {
            let t = &t.stats;
            let moved = [
                ("earned", t.earned_milli),
                ("spent", t.spent_milli),
                ("given", t.given_milli),
                ("taken", t.taken_milli),
            ];
            // Whole tokens, as the metrics of rates have them.
            word("flow", moved.map(|(flow, milli)| (flow, milli / 1000)))
        },
    )?;
    by_word(
        snapshot,
        encoder,
        (
            "tenant_windows",
            "Seconds with reads, by whether the promise was kept",
            None,
        ),
        |t| {
            word(
                "slo",
                [("met", t.windows.met), ("missed", t.windows.missed)],
            )
        },
    )
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

/// Values that one more label tells apart.
fn word<const COUNT: usize>(
    label: &'static str,
    values: [(&'static str, u64); COUNT],
) -> Vec<(&'static str, &'static str, u64)> {
    values.map(|(word, value)| (label, word, value)).to_vec()
}

fn by_word(
    snapshot: &Snapshot,
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<Unit>),
    values: impl Fn(&TenantSnapshot) -> Vec<(&'static str, &'static str, u64)>,
) -> fmt::Result {
    let values = tenants(snapshot).flat_map(|(labels, tenant)| {
        let values = values(tenant).into_iter();
        values.map(move |(label, word, value)| {
            let mut labels = labels.clone();
            labels.push((label, word.to_owned()));
            (labels, Value::Count(value))
        })
    });
    family(
        encoder,
        FamilyKind::Counter,
        name,
        help,
        unit.as_ref(),
        values,
    )
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
            let mut labels = labels.clone();
            labels.push(("operation", operation.to_owned()));
            labels.push(("part", part.to_owned()));
            histogram(&mut metric.encode_family(&labels)?, latency)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::render;

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
        let text = render(snapshot);
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
