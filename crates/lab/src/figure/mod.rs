//! The figures of the papers, reproduced on this machine.
//!
//! Each figure is a file that declares its workload, the compared systems, its sweep, and the
//! paper's claims as quotients with bounds. A [`Runner`] runs the [`Scenario`]s of its [`Plan`] in
//! turns ([`measure`]); a [`FigureReport`] summarises and judges them, and [`plot`] draws them. The
//! command line owns the runner and the files.
//!
//! Invariants: every number in a report was measured in that very run; every claim can fail.

mod args;
mod blk_switch;
mod cell;
mod claim;
mod disturbance;
pub mod goals;
mod goals_report;
mod i10;
mod list;
mod measure;
mod paths;
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

pub use args::{FigureArgs, GoalsArgs};
pub use claim::{Bound, Claim, Comparison, Divisor, Verdict, short};
pub use disturbance::{Disturbance, ProcessorTime};
pub use goals_report::{GoalsReport, measure_goals};
pub use list::{FIGURES, named, renamed};
pub use measure::{Effort, Measured, Progress, RUNS_MAX, Runner, measure};
pub use plan::{Axis, Cell, Extent, Panel, Plan, Point, Scale, Style};
pub use quiet::{Disturbances, Quiet, TRIES_MAX};
pub use report::{FigureReport, PointReport, Value};
pub use run::{List, chosen, draw};
pub use sample::{AppSample, Carried, End, Metric, Sample, Sends, Slices, Statistic};
pub use scenario::{
    FLASH_READ_US, FLASH_WRITE_US, LOAD_CORE, Layout, LoadProcess, SHARED_CORES, Scenario, Stack,
    Storage, System, TARGET_CORE, Workload,
};
pub use simulation::{Simulation, simulate};

use sim::model::Costs;
use sim::paths::Machine as Processors;

/// A figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name: paper, number, and part if the paper's figure has several, with the prefix `sim-`
    /// if it is simulated by a model of the machine or by emulated devices in virtual time.
    pub name: &'static str,
    /// Title: the subject of the figure.
    pub title: &'static str,
    /// Place in the paper.
    pub paper: &'static str,
    /// Description of the workload.
    pub workload: &'static str,
    /// Source of its numbers.
    pub work: Work,
}

/// Source of a figure's numbers.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Measured on this machine; returns the plan.
    Machine(fn(Extent) -> Plan),
    /// Computed by the simulator's model.
    Simulated(Simulation),
    /// The plan of a measured figure, run by the simulator's model of I/O paths on these
    /// processors.
    Paths(fn(Extent) -> Plan, fn(&Costs) -> Processors),
}
