//! What two looks at a target say, as tables.

use super::Cell;
use super::interval::Interval;
use control::snapshot::{
    ClassOfService, ClassSnapshot, NamespaceSnapshot, SharedDeviceSnapshot, Snapshot,
    SwitchSnapshot, TenantSnapshot,
};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use std::fmt;

/// Everything that is shown.
#[derive(Clone, Debug)]
pub struct Board {
    /// How the target is as a whole, on one line.
    pub summary: String,
    /// Tenants, cores, namespaces, queues.
    pub tables: [Table; TABLES],
}

/// What stands between two columns.
pub const GAP: &str = "  ";

/// How many tables there are.
pub const TABLES: usize = 4;

/// Rows of the same columns.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    /// What is said instead of no rows.
    pub empty: &'static str,
    pub columns: &'static [Column],
    /// So many columns say what a row is about; they do not scroll.
    pub fixed: usize,
    pub rows: Vec<Row>,
}

/// A column for scripts, and for people.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// With the unit.
    pub key: &'static str,
    pub title: &'static str,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Rows of a group stay together, in the groups' order.
    pub group: usize,
    /// The row is about its whole group, and stays before the rest of it.
    pub is_head: bool,
    pub cells: Vec<Cell>,
}

impl Row {
    fn plain(cells: impl Into<Vec<Cell>>) -> Self {
        Self {
            group: 0,
            is_head: false,
            cells: cells.into(),
        }
    }
}

impl Board {
    /// What the later look says, and what happened since the earlier.
    #[must_use]
    pub fn between(earlier: Option<&Snapshot>, later: &Snapshot) -> Self {
        let interval = Interval::between(earlier, later);
        let nothing = Snapshot::default();
        let earlier = earlier.filter(|_| interval.is_known()).unwrap_or(&nothing);
        let connections = &later.connections;
        Self {
            summary: format!(
                "up {}, {} connections, {} controllers, {}/{} threads",
                Uptime(later.uptime_ms / 1000),
                connections.open,
                later.controllers.len(),
                later.threads.active,
                later.cores.len()
            ),
            tables: [
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

/// Whatever another program says its counters are, this ends.
fn sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

macro_rules! columns {
    ($($key:literal $title:literal),* $(,)?) => {
        &[$(Column { key: $key, title: $title }),*]
    };
}

const TENANTS: &[Column] = columns![
    "device" "device",
    "tenant" "tenant",
    "class" "class",
    "reserved_tokens_per_second" "promised",
    "iops" "IOPS",
    "bytes_per_second" "B/s",
    "errors_per_second" "err/s",
    "spent_tokens_per_second" "spent/s",
    "earned_tokens_per_second" "earned/s",
    "given_tokens_per_second" "given/s",
    "taken_tokens_per_second" "taken/s",
    "waiting" "waiting",
    "read_p50_ns" "p50",
    "read_p95_ns" "p95",
    "read_p99_ns" "p99",
    "windows_met" "met",
    "windows_missed" "missed",
    "overruns" "overruns",
];

fn tenants(interval: Interval, earlier: &Snapshot, later: &Snapshot) -> Table {
    let mut rows = Vec::new();
    for (group, device) in later.devices.iter().enumerate() {
        let same = |before: &&SharedDeviceSnapshot| before.device == device.device;
        let before = earlier.devices.iter().find(same);
        let served: Vec<Vec<Cell>> = device
            .tenants
            .iter()
            .map(|tenant| {
                let same = |before: &&TenantSnapshot| before.name == tenant.name;
                let before = before.and_then(|device| device.tenants.iter().find(same));
                tenant_cells(interval, device, before, tenant)
            })
            .collect();
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
        empty: "no device has a model, so nothing is scheduled",
        columns: TENANTS,
        fixed: 2,
        rows,
    }
}

fn tenant_cells(
    interval: Interval,
    device: &SharedDeviceSnapshot,
    before: Option<&TenantSnapshot>,
    tenant: &TenantSnapshot,
) -> Vec<Cell> {
    let nothing = TenantSnapshot::default();
    let before = before.unwrap_or(&nothing);
    let commands =
        |t: &TenantSnapshot| sum([t.commands.reads, t.commands.writes, t.commands.others]);
    let bytes = |t: &TenantSnapshot| sum([t.commands.read_bytes, t.commands.written_bytes]);
    let (was, is) = (before.tokens_milli, tenant.tokens_milli);
    let [p50, p95, p99] = interval.percentiles(&before.latency.reads, &tenant.latency.reads);
    vec![
        Cell::text(&device.device),
        Cell::text(&tenant.name),
        class(&tenant.class),
        Cell::Count(tenant.reserved_tokens_per_second),
        interval.count(commands(before), commands(tenant)),
        interval.bytes(bytes(before), bytes(tenant)),
        interval.count(before.commands.errors, tenant.commands.errors),
        interval.milli(was.spent, is.spent),
        interval.milli(was.earned, is.earned),
        interval.milli(was.given, is.given),
        interval.milli(was.taken, is.taken),
        Cell::Count(tenant.waiting),
        p50,
        p95,
        p99,
        Cell::Count(tenant.windows_met),
        Cell::Count(tenant.windows_missed),
        Cell::text(if tenant.overruns { "yes" } else { "no" }),
    ]
}

/// The device as a whole: sums of what its tenants' numbers are, and what is promised of its
/// tokens. Latencies of different tenants do not add up.
fn device_cells(device: &SharedDeviceSnapshot, tenants: &[Vec<Cell>]) -> Vec<Cell> {
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
    cells[0] = Cell::text(&device.device);
    cells[1] = Cell::text("(all)");
    cells[2] = Cell::text(&format!(
        "{} tokens/s",
        Cell::Count(device.tokens_per_second)
    ));
    cells[3] = Cell::Count(device.reserved_tokens_per_second);
    cells
}

fn class(class: &ClassOfService) -> Cell {
    match class {
        ClassOfService::BestEffort { weight } => Cell::text(&format!("weight {weight}")),
        ClassOfService::LatencyCritical {
            percentile,
            latency_ns,
        } => Cell::text(&format!("{percentile} {}", Cell::Nanos(*latency_ns))),
    }
}

const CORES: &[Column] = columns![
    "core" "core",
    "class" "class",
    "core_busy_percent" "busy",
    "queues" "queues",
    "outstanding_bytes" "outstanding",
    "load_bytes" "load",
    "receive_quanta_per_second" "rx quanta/s",
    "send_quanta_per_second" "tx quanta/s",
    "preemptions_per_second" "preempt/s",
    "answers_per_second" "answers/s",
    "caravans_per_second" "caravans/s",
    "sent_bytes_per_second" "tx B/s",
    "moved_in" "moved in",
    "moved_out" "moved out",
    "steering_steps" "steered",
    "in_use" "in use",
    "scaled_in" "scaled in",
    "scaled_out" "scaled out",
];

fn cores(interval: Interval, earlier: &Snapshot, later: &Snapshot) -> Table {
    let mut rows = Vec::new();
    for core in &later.cores {
        let before = earlier.cores.iter().find(|other| other.core == core.core);
        let busy = interval.busy(before.map_or(0, |core| core.busy_ns), core.busy_ns);
        let switch = |snapshot: &Snapshot| -> Option<SwitchSnapshot> {
            let mut switches = snapshot.switch.iter();
            switches.find(|other| other.core == core.core).cloned()
        };
        let (was, is) = (
            switch(earlier).unwrap_or_default(),
            switch(later).unwrap_or_default(),
        );
        for (name, class) in &is.classes {
            let before = was.classes.get(name).cloned().unwrap_or_default();
            let mut cells = vec![
                Cell::Count(core.core.into()),
                Cell::text(name),
                busy.clone(),
            ];
            cells.extend(class_cells(interval, &before, class));
            cells.push(Cell::Count(is.steering_steps));
            cells.push(Cell::text(if is.in_use { "yes" } else { "no" }));
            cells.extend([is.scaled_in, is.scaled_out].map(Cell::Count));
            rows.push(Row::plain(cells));
        }
        if is.classes.is_empty() {
            let mut cells = vec![Cell::Unknown; CORES.len()];
            cells[0] = Cell::Count(core.core.into());
            cells[2] = busy;
            rows.push(Row::plain(cells));
        }
    }
    Table {
        name: "cores",
        empty: "no core has said anything yet",
        columns: CORES,
        fixed: 2,
        rows,
    }
}

fn class_cells(interval: Interval, before: &ClassSnapshot, class: &ClassSnapshot) -> [Cell; 11] {
    let preemptions = |c: &ClassSnapshot| sum([c.receive.preemptions, c.send.preemptions]);
    let caravans = |c: &ClassSnapshot| sum(c.caravans.rings.values().copied());
    [
        Cell::Count(class.queues),
        Cell::Bytes(class.outstanding_bytes),
        Cell::Bytes(class.load_bytes),
        interval.count(before.receive.quanta, class.receive.quanta),
        interval.count(before.send.quanta, class.send.quanta),
        interval.count(preemptions(before), preemptions(class)),
        interval.count(before.caravans.requests, class.caravans.requests),
        interval.count(caravans(before), caravans(class)),
        interval.bytes(before.caravans.bytes, class.caravans.bytes),
        Cell::Count(class.moved_in),
        Cell::Count(class.moved_out),
    ]
}

const NAMESPACES: &[Column] = columns![
    "device" "device",
    "nsid" "nsid",
    "reads_per_second" "read/s",
    "read_bytes_per_second" "read B/s",
    "read_p50_ns" "p50",
    "read_p95_ns" "p95",
    "read_p99_ns" "p99",
    "writes_per_second" "write/s",
    "written_bytes_per_second" "write B/s",
    "write_p50_ns" "p50",
    "write_p95_ns" "p95",
    "write_p99_ns" "p99",
    "flushes_per_second" "flush/s",
    "others_per_second" "other/s",
    "errors_per_second" "err/s",
    "size_bytes" "size",
    "subsystem" "subsystem",
];

fn namespaces(interval: Interval, earlier: &Snapshot, later: &Snapshot) -> Table {
    let nothing = NamespaceSnapshot::default();
    let row = |is: &NamespaceSnapshot| {
        let same = |was: &&NamespaceSnapshot| was.nqn == is.nqn && was.nsid == is.nsid;
        let was = earlier.namespaces.iter().find(same).unwrap_or(&nothing);
        let errors = |ns: &NamespaceSnapshot| {
            let kinds = [&ns.reads, &ns.writes, &ns.flushes, &ns.others];
            sum(kinds.map(|kind| kind.errors))
        };
        let mut cells = vec![Cell::text(&is.device), Cell::Count(is.nsid.into())];
        for (was, is) in [(&was.reads, &is.reads), (&was.writes, &is.writes)] {
            cells.push(interval.count(was.completed, is.completed));
            cells.push(interval.bytes(was.bytes, is.bytes));
            cells.extend(interval.percentiles(&was.latency, &is.latency));
        }
        cells.extend([
            interval.count(was.flushes.completed, is.flushes.completed),
            interval.count(was.others.completed, is.others.completed),
            interval.count(errors(was), errors(is)),
            Cell::Bytes(is.size_bytes),
            Cell::text(&is.nqn),
        ]);
        Row::plain(cells)
    };
    Table {
        name: "namespaces",
        empty: "there are no namespaces",
        columns: NAMESPACES,
        fixed: 2,
        rows: later.namespaces.iter().map(row).collect(),
    }
}

const QUEUES: &[Column] = columns![
    "cntlid" "cntlid",
    "qid" "qid",
    "core" "core",
    "inflight" "in flight",
    "depth" "depth",
    "peer" "peer",
    "host" "host",
    "subsystem" "subsystem",
];

fn queues(later: &Snapshot) -> Table {
    let rows = later.controllers.iter().flat_map(|controller| {
        controller.io_queues.iter().map(|queue| {
            let peer = controller.peer.map(|peer| Cell::text(&peer.to_string()));
            Row::plain([
                Cell::Count(controller.cntlid.into()),
                Cell::Count(queue.qid.into()),
                Cell::Count(queue.core.into()),
                Cell::Count(queue.inflight.into()),
                Cell::Count(queue.depth.into()),
                peer.unwrap_or(Cell::Unknown),
                Cell::text(&controller.host_nqn),
                Cell::text(&controller.nqn),
            ])
        })
    });
    Table {
        name: "queues",
        empty: "no host has an I/O queue open",
        columns: QUEUES,
        fixed: 2,
        rows: rows.collect(),
    }
}

/// Tables by name; a row as an object of its columns' keys.
impl Serialize for Board {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(TABLES))?;
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

impl Table {
    /// Of every column, in characters, its title included.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        columns
            .map(|(index, column)| {
                let cells = self.rows.iter().map(|row| row.cells[index].to_string());
                let widest = cells.map(|cell| cell.chars().count()).max();
                widest.unwrap_or(0).max(column.title.chars().count())
            })
            .collect()
    }

    /// The column has names.
    #[must_use]
    pub fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row.cells[column].is_text())
    }

    /// The title of a column, where its cells stand.
    #[must_use]
    pub fn title(&self, column: usize, width: usize) -> String {
        let title = self.columns[column].title;
        if self.is_text(column) {
            format!("{title:<width$}")
        } else {
            format!("{title:>width$}")
        }
    }
}

/// A cell as wide as its column.
#[must_use]
pub fn padded(cell: &Cell, width: usize) -> String {
    let text = cell.to_string();
    if cell.is_text() {
        format!("{text:<width$}")
    } else {
        format!("{text:>width$}")
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
