//! The difference of two samples of a target, or of a process of front ends, as tables.
//!
//! Whatever a target or its hosts call themselves must never reach a terminal as a control sequence:
//! [`Cell::text`] sees to that.

mod attachments;
mod cell;
#[cfg(test)]
pub mod fixtures;
mod interval;
mod table;

pub use cell::Cell;
pub use table::{Column, GAP, Row, Table, padded};

use control::snapshot::{
    ClassStats, ControllerSnapshot, NamespaceSnapshot, QueueSnapshot, ScheduledDevice,
    ServiceClass, Snapshot, SwitchSnapshot, TenantSnapshot,
};
use frontend::attach::AttachmentSnapshot;
use interval::{Interval, Rise};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use switch::Class;
use table::{columns, sum};
use target::TenantStats;

/// The measurements of a process at one moment, as `/v1/stats` reports them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Those of a target; a process of front ends reports its uptime alone.
    #[serde(flatten)]
    pub target: Snapshot,
    /// The attachments of a process of front ends; `None` for a target.
    pub attachments: Option<Vec<AttachmentSnapshot>>,
}

/// Everything that is shown.
#[derive(Clone, Debug)]
pub struct Board {
    /// A summary of the target, on one line.
    pub summary: String,
    /// Tenants, cores, namespaces and queues of a target; attachments of a process of front ends.
    pub tables: Vec<Table>,
}

impl Board {
    /// Returns the tables of the later sample, with rates since the earlier.
    #[must_use]
    pub fn between(earlier: Option<&Sample>, later: &Sample) -> Self {
        let interval = Interval::between(earlier.map(|earlier| &earlier.target), &later.target);
        let nothing = Sample::default();
        let earlier = earlier.filter(|_| interval.is_known()).unwrap_or(&nothing);
        let attachments = &later.attachments;
        let (before, later) = (earlier.attachments.as_deref(), &later.target);
        let uptime = Uptime(later.uptime_ms / 1000);
        if let Some(list) = attachments {
            let before = before.unwrap_or_default();
            return Self {
                summary: format!("up {uptime}, {}", attachments::summary(list)),
                tables: vec![attachments::table(interval, before, list)],
            };
        }
        let earlier = &earlier.target;
        let connections = &later.connections;
        let summary = format!(
            "up {uptime}, {} connections, {} controllers, {}/{} threads",
            connections.open,
            later.controllers.len(),
            later.threads.active,
            later.cores.len()
        );
        Self {
            summary,
            tables: vec![
                tenants(interval, earlier, later),
                cores(interval, earlier, later),
                namespaces(interval, earlier, later),
                queues(later),
            ],
        }
    }
}

/// Seconds as people read them.
struct Uptime(u64);

impl fmt::Display for Uptime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0 / 86_400, self.0 % 86_400);
        if days > 0 {
            write!(f, "{days}d ")?;
        }
        let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(f, "{hours}:{minutes:02}:{seconds:02}")
    }
}

fn yes(is: bool) -> Cell {
    Cell::text(if is { "yes" } else { "no" })
}

/// A tenant on a device, now and at the earlier look.
struct TenantRow<'a> {
    device: &'a ScheduledDevice,
    is: &'a TenantSnapshot,
    rise: Rise<'a, TenantStats>,
    /// p50, p95 and p99 of its reads.
    reads: [Cell; 3],
}

columns! { TENANTS, tenant_cells(row: TenantRow<'_>):
    "device" "device" => Cell::text(&row.device.name),
    "tenant" "tenant" => Cell::text(&row.is.name),
    "class" "class" => class(&row.is.class),
    "reserved_tokens_per_second" "reserved" => Cell::Count(row.is.reserved_tokens_per_second),
    "iops" "IOPS" => row.rise.count(|t| sum([t.reads, t.writes, t.others])),
    "bytes_per_second" "B/s" => row.rise.bytes(|t| sum([t.read_bytes, t.written_bytes])),
    "errors_per_second" "err/s" => row.rise.count(|t| t.errors),
    "spent_tokens_per_second" "spent/s" => row.rise.milli(|t| t.spent_milli),
    "earned_tokens_per_second" "earned/s" => row.rise.milli(|t| t.earned_milli),
    "given_tokens_per_second" "given/s" => row.rise.milli(|t| t.given_milli),
    "taken_tokens_per_second" "taken/s" => row.rise.milli(|t| t.taken_milli),
    "waiting" "waiting" => Cell::Count(row.is.stats.waiting),
    "read_p50_ns" "p50" => row.reads[0].clone(),
    "read_p95_ns" "p95" => row.reads[1].clone(),
    "read_p99_ns" "p99" => row.reads[2].clone(),
    "windows_met" "met" => Cell::Count(row.is.windows.met),
    "windows_missed" "missed" => Cell::Count(row.is.windows.missed),
    "overruns" "overruns" => yes(row.is.overruns),
}

fn tenants(interval: Interval, earlier: &Snapshot, later: &Snapshot) -> Table {
    let mut rows = Vec::new();
    let nothing = TenantSnapshot::default();
    for (group, device) in later.devices.iter().enumerate() {
        let same = |before: &&ScheduledDevice| before.name == device.name;
        let before = earlier.devices.iter().find(same);
        let cells = |is: &TenantSnapshot| {
            let same = |before: &&TenantSnapshot| before.name == is.name;
            let before = before.and_then(|device| device.tenants.iter().find(same));
            let was = before.unwrap_or(&nothing);
            tenant_cells(&TenantRow {
                device,
                is,
                rise: interval.rise(&was.stats, &is.stats),
                reads: interval.percentiles(&was.latency.reads, &is.latency.reads),
            })
        };
        let served: Vec<Vec<Cell>> = device.tenants.iter().map(cells).collect();
        rows.push(Row {
            group,
            is_head: true,
            cells: device_cells(device, &served),
        });
        rows.extend(served.into_iter().map(|cells| Row {
            group,
            is_head: false,
            cells,
        }));
    }
    Table {
        name: "tenants",
        empty: "no device has a cost model",
        columns: TENANTS,
        fixed: 2,
        rows,
    }
}

/// Returns the cells of a device: sums over its tenants, and the part of its tokens reserved for SLOs.
/// Latencies of different tenants do not add up.
fn device_cells(device: &ScheduledDevice, tenants: &[Vec<Cell>]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = match tenants.split_first() {
        Some((first, rest)) => rest.iter().fold(first.clone(), |sum, tenant| {
            sum.iter().zip(tenant).map(|(a, b)| a.plus(b)).collect()
        }),
        None => vec![Cell::Unknown; TENANTS.len()],
    };
    for cell in &mut cells {
        if !matches!(cell, Cell::Count(_) | Cell::Bytes(_)) {
            *cell = Cell::Unknown;
        }
    }
    cells[0] = Cell::text(&device.name);
    cells[1] = Cell::text("(all)");
    cells[2] = Cell::text(&format!(
        "{} tokens/s",
        Cell::Count(device.tokens_per_second)
    ));
    cells[3] = Cell::Count(device.reserved_tokens_per_second);
    cells
}

fn class(class: &ServiceClass) -> Cell {
    match class {
        ServiceClass::BestEffort { weight } => Cell::text(&format!("weight {weight}")),
        ServiceClass::LatencyCritical {
            percentile,
            latency_ns,
        } => Cell::text(&format!("{percentile} {}", Cell::Nanos(*latency_ns))),
    }
}

/// A class on a core, now and at the earlier look.
struct ClassRow<'a> {
    core: u32,
    busy: Cell,
    class: Class,
    switch: &'a SwitchSnapshot,
    rise: Rise<'a, ClassStats>,
}

columns! { CORES, class_cells(row: ClassRow<'_>):
    "core" "core" => Cell::Count(row.core.into()),
    "class" "class" => Cell::text(&row.class.to_string()),
    "core_busy_percent" "busy" => row.busy.clone(),
    "queues" "queues" => Cell::Count(row.rise.is.queues),
    "outstanding_bytes" "outstanding" => Cell::Bytes(row.rise.is.outstanding_bytes),
    "load_bytes" "load" => Cell::Bytes(row.rise.is.load_bytes),
    "receive_quanta_per_second" "rx quanta/s" => row.rise.count(|c| c.receive.quanta),
    "send_quanta_per_second" "tx quanta/s" => row.rise.count(|c| c.send.quanta),
    "preemptions_per_second" "preempt/s" => row.rise.count(|c| sum([c.receive.preemptions, c.send.preemptions])),
    "answers_per_second" "compl/s" => row.rise.count(|c| c.caravans.requests),
    "caravans_per_second" "batches/s" => row.rise.count(|c| sum(c.caravans.rings)),
    "sent_bytes_per_second" "tx B/s" => row.rise.bytes(|c| c.caravans.bytes),
    "moved_in" "moved in" => Cell::Count(row.rise.is.moved_in),
    "moved_out" "moved out" => Cell::Count(row.rise.is.moved_out),
    "steering_steps" "steered" => Cell::Count(row.switch.stats.steering_steps),
    "in_use" "in use" => yes(row.switch.in_use),
    "scaled_in" "scaled in" => Cell::Count(row.switch.stats.scaled_in),
    "scaled_out" "scaled out" => Cell::Count(row.switch.stats.scaled_out),
}

fn cores(interval: Interval, earlier: &Snapshot, later: &Snapshot) -> Table {
    let mut rows = Vec::new();
    let nothing = ClassStats::default();
    for core in &later.cores {
        let before = earlier.cores.iter().find(|other| other.core == core.core);
        let busy = interval.busy(before.map_or(0, |core| core.busy_ns), core.busy_ns);
        let switch = |snapshot: &'_ Snapshot| {
            let found = snapshot.switch.iter().position(|it| it.core == core.core);
            found.map(|index| snapshot.switch[index].clone())
        };
        let Some(is) = switch(later) else {
            continue;
        };
        let was = switch(earlier);
        for (class, stats) in is.stats.classes.iter() {
            let was = was.as_ref().map(|was| &was.stats.classes[class]);
            rows.push(Row::plain(class_cells(&ClassRow {
                core: core.core,
                busy: busy.clone(),
                class,
                switch: &is,
                rise: interval.rise(was.unwrap_or(&nothing), stats),
            })));
        }
    }
    Table {
        name: "cores",
        empty: "no data from the cores yet",
        columns: CORES,
        fixed: 2,
        rows,
    }
}

/// A namespace, now and at the earlier look.
struct NamespaceRow<'a> {
    is: &'a NamespaceSnapshot,
    rise: Rise<'a, target::NamespaceSnapshot>,
    /// p50, p95 and p99 of reads, then of writes.
    latencies: [[Cell; 3]; 2],
}

columns! { NAMESPACES, namespace_cells(row: NamespaceRow<'_>):
    "device" "device" => Cell::text(&row.is.device),
    "nsid" "nsid" => Cell::Count(row.is.namespace.nsid.into()),
    "reads_per_second" "read/s" => row.rise.count(|n| n.reads.completed),
    "read_bytes_per_second" "read B/s" => row.rise.bytes(|n| n.reads.bytes),
    "read_p50_ns" "p50" => row.latencies[0][0].clone(),
    "read_p95_ns" "p95" => row.latencies[0][1].clone(),
    "read_p99_ns" "p99" => row.latencies[0][2].clone(),
    "writes_per_second" "write/s" => row.rise.count(|n| n.writes.completed),
    "written_bytes_per_second" "write B/s" => row.rise.bytes(|n| n.writes.bytes),
    "write_p50_ns" "p50" => row.latencies[1][0].clone(),
    "write_p95_ns" "p95" => row.latencies[1][1].clone(),
    "write_p99_ns" "p99" => row.latencies[1][2].clone(),
    "flushes_per_second" "flush/s" => row.rise.count(|n| n.flushes.completed),
    "others_per_second" "other/s" => row.rise.count(|n| n.others.completed),
    "errors_per_second" "err/s" => row.rise.count(|n| sum(n.operations().map(|(_, kind)| kind.errors))),
    "size_bytes" "size" => Cell::Bytes(row.is.size_bytes),
    "subsystem" "subsystem" => Cell::text(&row.is.nqn),
}

fn namespaces(interval: Interval, earlier: &Snapshot, later: &Snapshot) -> Table {
    let nothing = NamespaceSnapshot::default();
    let row = |is: &NamespaceSnapshot| {
        let same =
            |was: &&NamespaceSnapshot| was.nqn == is.nqn && was.namespace.nsid == is.namespace.nsid;
        let was = earlier.namespaces.iter().find(same).unwrap_or(&nothing);
        let (before, now) = (&was.namespace, &is.namespace);
        Row::plain(namespace_cells(&NamespaceRow {
            is,
            rise: interval.rise(before, now),
            latencies: [
                interval.percentiles(&before.reads.latency, &now.reads.latency),
                interval.percentiles(&before.writes.latency, &now.writes.latency),
            ],
        }))
    };
    Table {
        name: "namespaces",
        empty: "no namespaces",
        columns: NAMESPACES,
        fixed: 2,
        rows: later.namespaces.iter().map(row).collect(),
    }
}

/// An I/O queue of a controller.
type QueueRow<'a> = (&'a ControllerSnapshot, &'a QueueSnapshot);

fn number(number: Option<u32>) -> Cell {
    number.map_or(Cell::Unknown, |number| Cell::Count(number.into()))
}

columns! { QUEUES, queue_cells(row: QueueRow<'_>):
    "cntlid" "cntlid" => Cell::Count(row.0.id.into()),
    "qid" "qid" => Cell::Count(row.1.qid.into()),
    "core" "core" => number(row.1.core),
    "depth" "depth" => Cell::Count(row.1.depth.into()),
    "header_digest" "hdgst" => yes(row.1.header_digest),
    "data_digest" "ddgst" => yes(row.1.data_digest),
    "peer" "peer" => Cell::text(&row.0.peer.to_string()),
    "host" "host" => Cell::text(&row.0.host_nqn),
    "identity" "identity" => Cell::text(row.0.identity.word()),
    "subsystem" "subsystem" => Cell::text(&row.0.nqn),
}

fn queues(later: &Snapshot) -> Table {
    let rows = later.controllers.iter().flat_map(|controller| {
        let queues = controller.io_queues.iter();
        queues.map(move |queue| Row::plain(queue_cells(&(controller, queue))))
    });
    Table {
        name: "queues",
        empty: "no I/O queues",
        columns: QUEUES,
        fixed: 2,
        rows: rows.collect(),
    }
}

/// Tables by name; a row as an object of its columns' keys.
impl Serialize for Board {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.tables.len()))?;
        for table in &self.tables {
            let rows: Vec<_> = table.rows.iter().map(|row| Keyed(table, row)).collect();
            map.serialize_entry(table.name, &rows)?;
        }
        map.end()
    }
}

struct Keyed<'a>(&'a Table, &'a Row);

impl Serialize for Keyed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let columns = self.0.columns.iter().map(|column| column.key);
        serializer.collect_map(columns.zip(&self.1.cells))
    }
}

/// Plain text: everything, whatever its width.
impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        for table in &self.tables {
            write!(f, "\n\n{}", table.name.to_uppercase())?;
            if table.rows.is_empty() {
                write!(f, "\n{}", table.empty)?;
                continue;
            }
            let widths = table.widths();
            let columns = || 0..table.columns.len();
            let titles = columns().map(|column| table.title(column, widths[column]));
            let titles = titles.collect::<Vec<_>>().join(GAP);
            write!(f, "\n{}", titles.trim_end())?;
            for row in &table.rows {
                let cells = columns().map(|column| padded(&row.cells[column], widths[column]));
                let cells = cells.collect::<Vec<_>>().join(GAP);
                write!(f, "\n{}", cells.trim_end())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
