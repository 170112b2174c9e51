//! Table 7: Iozone through the page cache, by path. `[Yu §6.2]`
//!
//! Two kinds of claims are judged: each path's throughput relative to the baseline, and the order
//! of the paths in each column. The read-ahead fix is on, as it evidently was in the thesis.

use super::cached::{ALL, PATHS, SIMULATED_WORKLOAD};
use super::{THROUGHPUT, cached};
use crate::figure::claim::Bound;
use crate::figure::plan::{Cell, Extent, Plan, cell};
use crate::figure::{Figure, Work};
use sim::paths::Machine;

/// With the costs of the performance model.
pub(in crate::figure) const MEASURED_COSTS: Figure = Figure {
    name: "sim-thesis-table7a",
    title: "Throughput through a cache, by path (simulated, costs of this kind of machine)",
    work: Work::Paths(plan, Machine::of),
    ..THESIS_COSTS
};

/// With the thesis' costs of single requests.
pub(in crate::figure) const THESIS_COSTS: Figure = Figure {
    name: "sim-thesis-table7b",
    title: "Throughput through a cache, by path (simulated, costs of the thesis' table 6)",
    paper: "Yu §6.2, Table 7",
    workload: SIMULATED_WORKLOAD,
    work: Work::Paths(plan, Machine::of_thesis),
};

/// Names a row's cells for their claims.
macro_rules! row {
    ($path:literal: $($column:literal $ratio:literal),*) => {
        &[$((concat!($path, ", ", $column), $path, $column, $ratio)),*]
    };
}

/// A cell: the name of its claim, the path, the column, and the thesis' throughput relative to the
/// interrupt path.
type Ratio = (&'static str, &'static str, &'static str, f64);

/// The thesis' table. For 2Q with 32 threads two cells are illegible; two follow from the text.
const ROWS: [&[Ratio]; 5] = [
    row!("sync": "SeqR 1" 0.87, "SeqW 1" 0.54, "RandR 1" 1.65, "RandW 1" 1.12, "RandM 1" 1.65,
        "SeqR 32" 1.15, "SeqW 32" 0.74, "RandR 32" 2.07, "RandW 32" 1.09, "RandM 32" 2.02),
    row!("stm": "SeqR 1" 0.87, "SeqW 1" 0.54, "RandR 1" 1.63, "RandW 1" 1.11, "RandM 1" 1.63,
        "SeqR 32" 1.25, "SeqW 32" 1.44, "RandR 32" 3.99, "RandW 32" 2.26, "RandM 32" 4.05),
    row!("atm": "SeqR 1" 0.90, "SeqW 1" 1.02, "RandR 1" 1.27, "RandW 1" 1.63, "RandM 1" 1.27,
        "SeqR 32" 1.19, "SeqW 32" 1.65, "RandR 32" 1.93, "RandW 32" 2.40, "RandM 32" 3.22),
    row!("htm": "SeqR 1" 0.87, "SeqW 1" 1.03, "RandR 1" 1.63, "RandW 1" 1.60, "RandM 1" 1.63,
        "SeqR 32" 1.25, "SeqW 32" 1.62, "RandR 32" 4.00, "RandW 32" 2.40, "RandM 32" 3.05),
    row!("2q": "SeqR 1" 0.89, "SeqW 1" 1.01, "RandR 1" 1.42, "RandW 1" 1.62, "RandM 1" 1.41,
        "SeqR 32" 1.23, "RandR 32" 3.9, "RandM 32" 4.4),
];

const BASELINE: &str = "interrupt";

/// Tolerance: a quotient may exceed or fall below the thesis' value by this factor.
const FACTOR: f64 = 1.5;

/// Paths that differ by less than this factor in the thesis have no order.
const APART: f64 = 1.1;

fn plan(_: Extent) -> Plan {
    let mut plan = cached::plan(&PATHS, &ALL);
    for (name, path, column, ratio) in ROWS.into_iter().flatten().copied() {
        plan.claim_pairs(
            name,
            "so many times the interrupt path's throughput, within a factor 1.5 of the thesis'",
            THROUGHPUT,
            [(cell(path, column), cell(BASELINE, column))],
            Bound::Between(rounded(ratio / FACTOR), rounded(ratio * FACTOR)),
        );
    }
    for (column, ..) in ALL {
        let (pairs, most) = ordered(column);
        plan.claim_pairs(
            column,
            "the paths are in the thesis' order, as far as they differ there by 10 %",
            THROUGHPUT,
            pairs,
            Bound::Between(1.0, most),
        );
    }
    plan
}

/// Pairs of paths of which the first has the higher throughput in the thesis, and the upper bound
/// of the quotient: the thesis' largest, with both values off by a factor of 1.5.
fn ordered(column: &str) -> (Vec<(Cell, Cell)>, f64) {
    let row = ROWS.into_iter().flatten().filter(|row| row.2 == column);
    let row = row.map(|row| (row.1, row.3));
    let ratios: Vec<_> = std::iter::once((BASELINE, 1.0)).chain(row).collect();
    let (mut pairs, mut most): (_, f64) = (Vec::new(), 1.0);
    for &(of, more) in &ratios {
        for &(to, less) in &ratios {
            if more >= APART * less {
                pairs.push((cell(of, column), cell(to, column)));
                most = most.max(more / less);
            }
        }
    }
    (pairs, rounded(most * FACTOR * FACTOR))
}

fn rounded(bound: f64) -> f64 {
    (bound * 100.0).round() / 100.0
}
