//! The figures of the papers, run again on this machine.
//!
//! What is this: each figure is a file that declares its workload, the systems it compares, its
//! sweep, and the shape that the paper claims, as quotients with bounds. A [`Runner`] runs the
//! [`Scenario`]s of its [`Plan`] in turns ([`measure`]); a [`Report`] summarises and judges them,
//! and [`plot`] draws them. The command line owns the runner and the files.
//!
//! What must never happen: a number that was not measured in the very run that a report is of, or
//! a claim that cannot fail.

mod blk_switch;
mod claim;
mod disturbance;
pub mod goals;
mod i10;
mod measure;
mod plan;
pub mod plot;
mod quiet;
mod reflex;
mod report;
mod sample;
mod scenario;
mod simulated;

#[cfg(test)]
mod tests;

pub use claim::{Bound, Claim, Comparison, Quantifier, Verdict, short};
pub use disturbance::{Disturbance, ProcessorTime};
pub use measure::{Effort, Measured, Progress, RUNS_MAX, Runner, measure};
pub use plan::{Axis, Cell, Extent, Panel, Plan, Point, Scale, SeriesClaim, Style};
pub use quiet::{Disturbances, Quiet, TRIES_MAX};
pub use report::{PointReport, Report, Value, XAxis, aligned};
pub use sample::{AppSample, End, Metric, Reported, Sample, Sends, Slices, Statistic};
pub use scenario::{
    FLASH_READ_US, FLASH_WRITE_US, LOAD_CORE, Layout, LoadProcess, SHARED_CORES, Scenario, Stack,
    Storage, System, TARGET_CORE, Workload,
};
pub use simulated::{Simulation, simulate};

/// A figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name: paper, number, and part where the paper's figure has several.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where the paper shows it.
    pub paper: &'static str,
    /// What is run, in words.
    pub workload: &'static str,
    /// How it comes to its numbers.
    pub work: Work,
}

/// How a figure comes to its numbers.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It is measured on this machine: what is run, shown and claimed.
    Machine(fn(Extent) -> Plan),
    /// The simulator's model says.
    Simulated(Simulation),
}

/// All figures, in the papers' order; those of the simulator last.
pub const FIGURES: &[Figure] = &[
    blk_switch::fig02::FIGURE,
    blk_switch::fig03::SIZE,
    blk_switch::fig03::SLICES,
    blk_switch::fig03::PACE,
    blk_switch::fig03::NICENESS,
    blk_switch::fig07::FIGURE,
    blk_switch::fig08::FIGURE,
    blk_switch::fig10::FIGURE,
    blk_switch::fig13::FIGURE,
    blk_switch::fig15::FIGURE,
    i10::fig06::FIGURE,
    i10::fig08::FIGURE,
    i10::fig10::FIGURE,
    i10::fig11::FIGURE,
    reflex::table2::FIGURE,
    reflex::fig06::TENANTS_FIGURE,
    reflex::fig06::CONNECTIONS_FIGURE,
    simulated::blk_switch::FIG07,
    simulated::blk_switch::FIG09,
    simulated::blk_switch::FIG10,
    simulated::blk_switch::FIG11,
    simulated::blk_switch::FIG12,
    simulated::i10::FIG07C,
    simulated::i10::FIG07D,
    simulated::i10::FIG09,
    simulated::reflex::FIG01,
    simulated::reflex::FIG03A,
    simulated::reflex::FIG03B,
    simulated::reflex::FIG03C,
    simulated::reflex_tenants::FIG05A,
    simulated::reflex_tenants::FIG05B,
    simulated::reflex_scaling::FIG06A,
    simulated::reflex_scaling::FIG06B,
    simulated::reflex_scaling::FIG06C,
];

/// The figures that `name` means: one, all parts of one, or "all". Empty where there is none.
/// A paper and a number may also be joined by a slash.
#[must_use]
pub fn named(name: &str) -> Vec<&'static Figure> {
    let name = &name.replace('/', "-");
    let part_of = |figure: &Figure| {
        let part = figure.name.strip_prefix(name.as_str());
        part.is_some_and(|part| {
            part.is_empty() || part.len() == 1 && part.starts_with(|c: char| c.is_ascii_lowercase())
        })
    };
    FIGURES
        .iter()
        .filter(|figure| name == "all" || part_of(figure))
        .collect()
}
