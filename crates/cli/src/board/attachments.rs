//! The attachments of a process of front ends, as a table.

use super::cell::Cell;
use super::interval::{Interval, Rise};
use super::table::{Column, Row, Table, columns, sum};
use block::IoCounts;
use frontend::attach::{AttachmentClass, AttachmentSnapshot};

/// A class of an attachment, now and at the earlier look.
struct AttachmentRow<'a> {
    attachment: &'a AttachmentSnapshot,
    is: &'a AttachmentClass,
    rise: Rise<'a, IoCounts>,
}

columns! { ATTACHMENTS, attachment_cells(row: AttachmentRow<'_>):
    "attachment" "attachment" => Cell::text(&row.attachment.name),
    "class" "class" => Cell::text(&row.is.class),
    "kind" "kind" => Cell::text(&row.attachment.kind),
    "state" "state" => Cell::text(&row.attachment.state.to_string()),
    "clients" "clients" => Cell::Count(row.attachment.clients),
    "reads_per_second" "read/s" => row.rise.count(|c| c.reads),
    "read_bytes_per_second" "read B/s" => row.rise.bytes(|c| c.read_bytes),
    "writes_per_second" "write/s" => row.rise.count(|c| c.writes),
    "written_bytes_per_second" "write B/s" => row.rise.bytes(|c| c.written_bytes),
    "others_per_second" "other/s" => row.rise.count(|c| c.others),
    "errors_per_second" "err/s" => row.rise.count(|c| c.errors),
    "outstanding" "outstanding" => Cell::Count(row.is.outstanding),
    "size_bytes" "size" => Cell::Bytes(row.attachment.size_bytes),
    "device" "device" => Cell::text(&row.attachment.device),
}

/// Returns the table of the later look, with rates since the earlier.
pub(super) fn table(
    interval: Interval,
    earlier: &[AttachmentSnapshot],
    later: &[AttachmentSnapshot],
) -> Table {
    let mut rows = Vec::new();
    for (group, attachment) in later.iter().enumerate() {
        let before = earlier.iter().find(|was| was.name == attachment.name);
        for is in &attachment.classes {
            let same = |was: &&AttachmentClass| was.class == is.class;
            let was = before.and_then(|before| before.classes.iter().find(same));
            let was = was.map(|was| was.counts).unwrap_or_default();
            let cells = attachment_cells(&AttachmentRow {
                attachment,
                is,
                rise: interval.rise(&was, &is.counts),
            });
            rows.push(Row {
                group,
                is_head: false,
                cells,
            });
        }
    }
    Table {
        name: "attachments",
        empty: "no attachments",
        columns: ATTACHMENTS,
        fixed: 2,
        rows,
    }
}

/// Returns a summary of all, for one line.
pub(super) fn summary(attachments: &[AttachmentSnapshot]) -> String {
    let clients = sum(attachments.iter().map(|attachment| attachment.clients));
    format!("{} attachments, {clients} clients", attachments.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{Board, Sample};
    use control::Snapshot;

    fn after(seconds: u64) -> Sample {
        let class = |class: &str| AttachmentClass {
            class: class.to_owned(),
            outstanding: 3,
            counts: IoCounts {
                reads: 100 * seconds,
                read_bytes: 409_600 * seconds,
                ..IoCounts::default()
            },
        };
        let attachment = AttachmentSnapshot {
            name: "vm1".to_owned(),
            kind: "vhost".to_owned(),
            clients: 1,
            classes: vec![class("latency"), class("throughput")],
            ..AttachmentSnapshot::default()
        };
        Sample {
            target: Snapshot {
                uptime_ms: 1000 * seconds,
                ..Snapshot::default()
            },
            attachments: Some(vec![attachment]),
        }
    }

    #[test]
    fn a_process_of_front_ends_has_one_table() {
        let board = Board::between(Some(&after(1)), &after(3));
        assert_eq!(board.summary, "up 0:00:03, 1 attachments, 1 clients");
        let value = serde_json::to_value(&board).expect("a board is JSON");
        let rows = value["attachments"].as_array().expect("a table");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["class"], "latency");
        assert_eq!(rows[0]["reads_per_second"], 100);
        assert_eq!(rows[0]["read_bytes_per_second"], 409_600);
        assert_eq!(rows[0]["state"], "local");
        assert!(value["tenants"].is_null());
    }
}
