//! Metrics of the attachments of a process of front ends.

use super::snapshot::{AttachmentClass, AttachmentSnapshot, AttachmentState};
use control::Snapshot;
use control::metrics::encode_limits;
use control::metrics::family::{Labels, by_word, counters, metrics, uptime, with};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use std::fmt;
use target::Metric;

/// The metrics of a process of front ends.
#[derive(Debug)]
pub(super) struct Scrape {
    /// The uptime, and the limits of its interface.
    pub(super) process: Snapshot,
    pub(super) attachments: Vec<AttachmentSnapshot>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        uptime(
            &self.process,
            &mut encoder,
            "Time since the process's start",
        )?;
        counters(&mut encoder, ATTACHMENT, || {
            self.attachments.iter().map(|one| (labels(one), one))
        })?;
        requests(&self.attachments, &mut encoder)?;
        encode_limits(&self.process, &mut encoder)
    }
}

fn labels(attachment: &AttachmentSnapshot) -> Labels {
    vec![
        ("attachment", attachment.name.clone()),
        ("kind", attachment.kind.clone()),
    ]
}

const ATTACHMENT: [Metric<AttachmentSnapshot>; 3] = metrics![AttachmentSnapshot:
    Gauge "attachment_connected"
        "1 while requests reach the device, 0 while its target is not connected or it has not started"
        |a| [AttachmentState::Local, AttachmentState::Connected].contains(&a.state).into();
    Gauge "attachment_clients" "Connections, machines or open files of the attachment"
        |a| a.clients;
    Gauge "attachment_size_bytes" "Size of the attachment's devices" |a| a.size_bytes;
];

const CLASS: [Metric<AttachmentClass>; 2] = metrics![AttachmentClass:
    Counter "attachment_errors" "Requests completed with an error" |class| class.counts.errors;
    Gauge "attachment_outstanding" "Requests submitted to the device and not completed"
        |class| class.outstanding;
];

/// Each attachment's counters of each class, with their labels.
fn by_class(
    attachments: &[AttachmentSnapshot],
) -> impl Iterator<Item = (Labels, &AttachmentClass)> {
    attachments.iter().flat_map(|attachment| {
        attachment
            .classes
            .iter()
            .map(|class| (with(labels(attachment), "class", &class.class), class))
    })
}

fn requests(
    attachments: &[AttachmentSnapshot],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Requests completed, with any result";
    let metric = ("attachment_requests", help, None);
    by_word(encoder, metric, by_class(attachments), "operation", |c| {
        let c = &c.counts;
        [("read", c.reads), ("write", c.writes), ("other", c.others)]
    })?;
    let metric = (
        "attachment_data",
        "Data moved by requests",
        Some(Unit::Bytes),
    );
    by_word(encoder, metric, by_class(attachments), "operation", |c| {
        let c = &c.counts;
        [("read", c.read_bytes), ("write", c.written_bytes)]
    })?;
    counters(encoder, CLASS, || by_class(attachments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::IoCounts;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

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
        let metrics = Scrape {
            process: Snapshot {
                uptime_ms: 2_500,
                ..Snapshot::default()
            },
            attachments: vec![attachment],
        };
        let mut registry = Registry::with_prefix("switchyard");
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes it");
        let of = "attachment=\"vm1\",kind=\"nbd\"";
        let read = format!("{of},class=\"latency\",operation=\"read\"");
        for line in [
            "switchyard_uptime_seconds 2.5".to_owned(),
            format!("switchyard_attachment_connected{{{of}}} 0"),
            format!("switchyard_attachment_clients{{{of}}} 2"),
            format!("switchyard_attachment_requests_total{{{read}}} 3"),
            format!("switchyard_attachment_data_bytes_total{{{read}}} 4096"),
            format!("switchyard_attachment_errors_total{{{of},class=\"latency\"}} 1"),
            format!("switchyard_attachment_outstanding{{{of},class=\"latency\"}} 0"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("switchyard_connections"), "{text}");
    }
}
