//! Figures of I/O paths in virtual time, with eight processors as the thesis had.
//!
//! The device is that of the measured figures, with its 5 µs of software a command.

use crate::figure::sample::{Carried, Metric};
use crate::figure::simulation::{MEASURED, MEASURED_QUICK, MERGED, THROUGHPUT};
use base::Nanos;
use sim::model::Costs;
use sim::model::figures::{Axis, Point, Series};
use sim::paths::{CacheSize, Load, Machine, Mix, Pattern, Report, Setup, run};
use switch::path::{Path, PathRules};

/// Pages of the device: 16 GiB.
const DEVICE_PAGES: u64 = 1 << 22;

/// Pages of a cache: 32 MiB. Like the thesis' memory it is much smaller than the device; the
/// smaller it is, the sooner it is in the state that it stays in.
const CACHE_PAGES: usize = 8192;

const WARM_UP: Nanos = Nanos::from_millis(40);

/// A system of a figure: its name there, its path, and its machine.
pub(super) type System = (&'static str, Path, Machine);

/// The paths that are compared, in the thesis' order.
pub(super) const PATHS: [Path; 6] = [
    Path::Interrupt,
    Path::Sync,
    Path::Stm,
    Path::Atm,
    Path::Htm,
    Path::TwoQueue,
];

/// A place on the axis, and what runs there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) x: f64,
    pub(super) load: Load,
    /// Through a cache of [`CACHE_PAGES`], or past it.
    pub(super) buffered: bool,
}

/// Every system at every column.
pub(super) fn simulate(
    axis: Axis,
    columns: &[Column],
    systems: &[System],
    (quick, seed): (bool, u64),
) -> Vec<Series> {
    let numbers = |report: &Report| {
        let carried = Carried::ALL.map(|carried| {
            let commands = (1..).zip(report.commands.iter().copied());
            let label = Metric::Commands(carried).label();
            (label, "%", carried.percent_of(commands))
        });
        let throughput = report.bytes_per_second * 8.0 / 1e9;
        let mut numbers = vec![
            (THROUGHPUT, "Gbit/s", throughput),
            (MERGED, "pages", report.merged()),
        ];
        numbers.extend(carried);
        numbers
    };
    let mut all: Vec<Series> = Vec::new();
    for &(system, path, machine) in systems {
        let first = all.len();
        for column in columns {
            let report = run(&setup(path, machine, column, quick, seed));
            for (index, (panel, unit, y)) in numbers(&report).into_iter().enumerate() {
                if all.len() == first + index {
                    all.push(Series {
                        panel,
                        x: axis,
                        y: Axis { name: panel, unit },
                        system,
                        points: Vec::new(),
                    });
                }
                all[first + index].points.push(Point { x: column.x, y });
            }
        }
    }
    all
}

/// Every system with so many threads of random requests, at depth 1.
pub(super) fn by_threads(
    counts: &[u32],
    read_permille: u16,
    buffered: bool,
    systems: &[System],
    effort: (bool, u64),
) -> Vec<Series> {
    let axis = Axis {
        name: "threads",
        unit: "",
    };
    let columns = counts.iter().map(|&threads| Column {
        x: threads.into(),
        load: Load {
            threads: threads as usize,
            pattern: Pattern::Random,
            mix: Mix::OfRequests(read_permille),
        },
        buffered,
    });
    let columns: Vec<_> = columns.collect();
    simulate(axis, &columns, systems, effort)
}

fn setup(path: Path, machine: Machine, column: &Column, quick: bool, seed: u64) -> Setup {
    let measured = if quick { MEASURED_QUICK } else { MEASURED };
    Setup {
        path,
        rules: PathRules::default(),
        device: "dram-ssd+5us".parse().expect("a profile of ours"),
        device_pages: DEVICE_PAGES,
        machine,
        load: column.load,
        cache: column.buffered.then(|| CacheSize::of(CACHE_PAGES)),
        warm_up: WARM_UP,
        measured: measured.into(),
        seed,
    }
}

/// All paths on one machine.
pub(super) fn on(machine: fn(&Costs) -> Machine, costs: &Costs) -> [System; 6] {
    PATHS.map(|path| (path.name(), path, machine(costs)))
}
