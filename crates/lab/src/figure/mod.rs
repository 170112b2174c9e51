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
mod cell;
mod claim;
mod disturbance;
pub mod goals;
mod goals_report;
mod i10;
mod measure;
mod plan;
pub mod plot;
mod quiet;
mod reflex;
mod report;
mod run;
mod sample;
mod scenario;
mod simulation;
mod thesis;

#[cfg(test)]
mod tests;

pub use claim::{Bound, Claim, Comparison, Divisor, Quantifier, Verdict, short};
pub use disturbance::{Disturbance, ProcessorTime};
pub use goals_report::{GoalsReport, measure_goals};
pub use measure::{Effort, Measured, Progress, RUNS_MAX, Runner, measure};
pub use plan::{Axis, Cell, Extent, Panel, Plan, Point, Scale, SeriesClaim, Style};
pub use quiet::{Disturbances, Quiet, TRIES_MAX};
pub use report::{PointReport, Report, Value, XAxis, aligned};
pub use run::{List, chosen, draw};
pub use sample::{AppSample, Carried, End, Metric, Reported, Sample, Sends, Slices, Statistic};
pub use scenario::{
    FLASH_READ_US, FLASH_WRITE_US, LOAD_CORE, Layout, LoadProcess, SHARED_CORES, Scenario, Stack,
    Storage, System, TARGET_CORE, Workload,
};
pub use simulation::{Simulation, simulate};

/// A figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name: paper, number, and part where the paper's figure has several; `sim-` before them
    /// where it is simulated, by a model of the machine or by emulated devices in virtual time.
    pub name: &'static str,
    /// Title: the subject of the figure.
    pub title: &'static str,
    /// Place in the paper.
    pub paper: &'static str,
    /// Workload, in words.
    pub workload: &'static str,
    /// Source of its numbers.
    pub work: Work,
}

/// Source of a figure's numbers.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It is measured on this machine: what is run, shown and claimed.
    Machine(fn(Extent) -> Plan),
    /// The simulator's model says.
    Simulated(Simulation),
}

/// All figures, in the papers' order, the simulated variant of each behind the measured one.
pub const FIGURES: &[Figure] = &[
    blk_switch::fig02::FIGURE,
    blk_switch::fig03::SIZE,
    blk_switch::fig03::SLICES,
    blk_switch::fig03::PACE,
    blk_switch::fig03::NICENESS,
    blk_switch::fig07::FIGURE,
    blk_switch::fig07::SIMULATED,
    blk_switch::fig08::FIGURE,
    blk_switch::fig09::SIMULATED,
    blk_switch::fig10::FIGURE,
    blk_switch::fig10::SIMULATED,
    blk_switch::fig11::SIMULATED,
    blk_switch::fig12::SIMULATED,
    blk_switch::fig13::FIGURE,
    blk_switch::fig15::FIGURE,
    i10::fig06::FIGURE,
    i10::fig07::READS,
    i10::fig07::WRITES,
    i10::fig08::FIGURE,
    i10::fig09::SIMULATED,
    i10::fig10::FIGURE,
    i10::fig11::FIGURE,
    reflex::fig01::SIMULATED,
    reflex::fig03::DEVICE_A,
    reflex::fig03::DEVICE_B,
    reflex::fig03::DEVICE_C,
    reflex::table2::FIGURE,
    reflex::fig05::FIRST,
    reflex::fig05::SECOND,
    reflex::fig06::simulated::THREADS_FIGURE,
    reflex::fig06::measured::TENANTS_FIGURE,
    reflex::fig06::simulated::TENANTS_FIGURE,
    reflex::fig06::measured::CONNECTIONS_FIGURE,
    reflex::fig06::simulated::CONNECTIONS_FIGURE,
    thesis::table6::FIGURE,
    thesis::table7::MEASURED_COSTS,
    thesis::table7::THESIS_COSTS,
    thesis::cached::FIG1,
    thesis::fig04::FIGURE,
    thesis::cached::FIG6,
    thesis::fig09::FIGURE,
    thesis::fig09::SIMULATED,
    thesis::cached::FIG11,
    thesis::cached::FIG12,
    thesis::cached::FIG14,
    thesis::cached::FIG15,
    thesis::cached::FIG17,
    thesis::fig18::FIGURE,
    thesis::fig18::SIMULATED,
    thesis::fig21::COMMAND,
    thesis::fig21::PAGE,
    thesis::fig22::FIGURE,
    thesis::fig23::FIGURE,
    thesis::fig23::READS,
    thesis::fig23::WRITES,
];

/// Returns the figures that `name` means: one, all parts of one, or "all"; empty where there is
/// none. A paper and a number may also be joined by a slash.
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

/// Returns the present name of a figure that had another one: simulated figures of ReFlex had no
/// `sim-`, and those that are measured ended in `-machine`.
#[must_use]
pub fn renamed(name: &str) -> Option<String> {
    let name = name.replace('/', "-");
    let now = match name.strip_suffix("-machine") {
        Some(measured) => measured.to_owned(),
        None => format!("sim-{name}"),
    };
    (named(&name).is_empty() && !named(&now).is_empty()).then_some(now)
}
