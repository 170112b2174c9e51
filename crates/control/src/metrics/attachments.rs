//! Metrics of the attachments of a process of front ends.

use super::family::{FamilyKind, Labels, Value, family, uptime};
use super::limits;
use crate::attachments::{AttachmentClass, AttachmentSnapshot, AttachmentState};
use crate::snapshot::Snapshot;
use block::IoCounts;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;

pub(super) fn encode(
    snapshot: &Snapshot,
    attachments: &[AttachmentSnapshot],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    uptime(snapshot, encoder, "Time since the process's start")?;
    gauges(attachments, encoder)?;
    requests(attachments, encoder)?;
    limits::encode(snapshot, encoder)
}

fn labels(attachment: &AttachmentSnapshot) -> Labels {
    vec![
        ("attachment", attachment.name.clone()),
        ("kind", attachment.kind.clone()),
    ]
}

fn gauges(attachments: &[AttachmentSnapshot], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Column = (
        &'static str,
        &'static str,
        Option<Unit>,
        fn(&AttachmentSnapshot) -> u64,
    );
    let columns: [Column; 3] = [
        (
            "attachment_connected",
            "1 while requests reach the device, 0 while its target is not connected or it has not started",
            None,
            |a| {
                let reaches = [AttachmentState::Local, AttachmentState::Connected];
                reaches.contains(&a.state).into()
            },
        ),
        (
            "attachment_clients",
            "Connections, machines or open files of the attachment",
            None,
            |a| a.clients,
        ),
        (
            "attachment_size",
            "Size of the attachment's devices",
            Some(Unit::Bytes),
            |a| a.size_bytes,
        ),
    ];
    for (name, help, unit, value) in columns {
        let values = attachments.iter();
        let values = values.map(|a| (labels(a), Value::Count(value(a))));
        family(
            encoder,
            FamilyKind::Gauge,
            name,
            help,
            unit.as_ref(),
            values,
        )?;
    }
    Ok(())
}

/// Each attachment's counters of each class, with their labels.
fn by_class(
    attachments: &[AttachmentSnapshot],
) -> impl Iterator<Item = (Labels, &AttachmentClass)> {
    attachments.iter().flat_map(|attachment| {
        attachment.classes.iter().map(|class| {
            let mut labels = labels(attachment);
            labels.push(("class", class.class.clone()));
            (labels, class)
        })
    })
}

/// An operation, and its counter.
type Operation = (&'static str, fn(&IoCounts) -> u64);

fn by_operation(
    attachments: &[AttachmentSnapshot],
    operations: &'static [Operation],
) -> impl Iterator<Item = (Labels, Value)> {
    by_class(attachments).flat_map(move |(labels, class)| {
        operations.iter().map(move |(operation, count)| {
            let mut labels = labels.clone();
            labels.push(("operation", (*operation).to_owned()));
            (labels, Value::Count(count(&class.counts)))
        })
    })
}

fn requests(
    attachments: &[AttachmentSnapshot],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    const REQUESTS: &[Operation] = &[
        ("read", |c| c.reads),
        ("write", |c| c.writes),
        ("other", |c| c.others),
    ];
    const DATA: &[Operation] = &[("read", |c| c.read_bytes), ("write", |c| c.written_bytes)];
    family(
        encoder,
        FamilyKind::Counter,
        "attachment_requests",
        "Requests completed, with any result",
        None,
        by_operation(attachments, REQUESTS),
    )?;
    family(
        encoder,
        FamilyKind::Counter,
        "attachment_data",
        "Data moved by requests",
        Some(&Unit::Bytes),
        by_operation(attachments, DATA),
    )?;
    family(
        encoder,
        FamilyKind::Counter,
        "attachment_errors",
        "Requests completed with an error",
        None,
        by_class(attachments).map(|(labels, class)| (labels, Value::Count(class.counts.errors))),
    )?;
    family(
        encoder,
        FamilyKind::Gauge,
        "attachment_under_way",
        "Requests that the device was given and has not finished",
        None,
        by_class(attachments).map(|(labels, class)| (labels, Value::Count(class.under_way))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::render;

    #[test]
    fn an_attachment_has_its_metrics_and_no_others() {
        let latency = AttachmentClass {
            class: "latency".to_owned(),
            counts: IoCounts {
                reads: 3,
                read_bytes: 4096,
                errors: 1,
                ..IoCounts::default()
            },
            ..AttachmentClass::default()
        };
        let attachment = AttachmentSnapshot {
            name: "vm1".to_owned(),
            kind: "nbd".to_owned(),
            state: AttachmentState::NotConnected,
            clients: 2,
            classes: vec![latency],
            ..AttachmentSnapshot::default()
        };
        let text = render(Snapshot {
            uptime_ms: 2_500,
            attachments: Some(vec![attachment]),
            ..Snapshot::default()
        });
        let of = "attachment=\"vm1\",kind=\"nbd\"";
        let read = format!("{of},class=\"latency\",operation=\"read\"");
        for line in [
            "switchyard_uptime_seconds 2.5".to_owned(),
            format!("switchyard_attachment_connected{{{of}}} 0"),
            format!("switchyard_attachment_clients{{{of}}} 2"),
            format!("switchyard_attachment_requests_total{{{read}}} 3"),
            format!("switchyard_attachment_data_bytes_total{{{read}}} 4096"),
            format!("switchyard_attachment_errors_total{{{of},class=\"latency\"}} 1"),
            format!("switchyard_attachment_under_way{{{of},class=\"latency\"}} 0"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("switchyard_connections"), "{text}");
    }
}
