//! Runs figures, measured or simulated, and writes their summaries and pictures to files.

use super::{
    Effort, Extent, Figure, FigureReport, Plan, Point, Progress, Quiet, Work, measure, named, plot,
    renamed, simulate,
};
use crate::Note;
use crate::process::{MachineRunner, found};
use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use sim::model::Costs;
use std::fmt;
use std::path::Path;

/// Names of measured figures that earlier versions used for their simulated variants.
const MEASURED_TWINS: [&str; 3] = ["reflex-6", "reflex-6b", "reflex-6c"];

/// Returns the figures of these names, each once, in the given order.
///
/// # Errors
/// An unknown name.
pub fn chosen(names: &[String], note: Note<'_>) -> Result<Vec<&'static Figure>> {
    let mut figures: Vec<&'static Figure> = Vec::new();
    for name in names {
        let now = renamed(name);
        if let Some(now) = &now {
            note(format_args!("{name} was renamed to {now}"));
        }
        let name = now.as_ref().unwrap_or(name);
        let found = named(name);
        ensure!(
            !found.is_empty(),
            "unknown figure \"{name}\"; `lab figure list` lists all figures"
        );
        for twin in MEASURED_TWINS.iter().filter(|twin| *twin == name) {
            note(format_args!(
                "{twin} is measured on this machine; the simulated figure is sim-{twin}"
            ));
        }
        figures.extend(found);
    }
    // Each once, in the given order.
    let mut seen = std::collections::BTreeSet::new();
    figures.retain(|figure| seen.insert(figure.name));
    Ok(figures)
}

/// Measures or simulates a figure, and writes its files into `folder`.
///
/// # Errors
/// Runs that fail, and files that cannot be written.
pub fn draw(
    figure: &Figure,
    extent: Extent,
    effort: &Effort,
    costs: &Costs,
    runner: &mut Quiet<MachineRunner>,
    folder: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<FigureReport> {
    let mut plan = match figure.work {
        Work::Machine(plan) => plan(extent),
        Work::Simulated(_) | Work::Paths(..) => {
            let report = simulate(figure, extent, effort, costs, &mut |run| {
                progress(Progress {
                    done: run,
                    total: effort.runs,
                    next: None,
                });
            })?;
            write(&report, folder)?;
            return Ok(report);
        }
    };
    let left_out = leave_out(&mut plan, found);
    let measured = measure(&plan, effort, runner, progress)?;
    let numbers = |cell: &_, metric| measured.numbers(&plan, cell, metric);
    let mut report = FigureReport::of(figure, &plan, &plan.cells(), extent, effort, numbers)?;
    report.disturbances = Some(runner.take());
    report.left_out = left_out;
    write(&report, folder)?;
    Ok(report)
}

/// Removes the series from a plan that need missing programs; returns them, with the reason.
fn leave_out(plan: &mut Plan, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut reasons = Vec::new();
    for series in plan.series.clone() {
        let of_it = |point: &&Point| point.cell.series == series;
        let stack = plan
            .points
            .iter()
            .find(of_it)
            .map(|point| point.scenario.system.stack);
        let programs = stack.map_or(&[][..], |stack| stack.programs());
        let Some((program, package)) = programs.iter().find(|(program, _)| !is_there(program))
        else {
            continue;
        };
        reasons.push(format!(
            "{series} needs {program}, of Debian's package {package}: apt-get install {package}"
        ));
        plan.leave_out(series);
    }
    reasons
}

/// Numbers first: a picture can be drawn again from them.
fn write(report: &FigureReport, folder: &Path) -> Result<()> {
    let path = |ending: &str| folder.join(format!("{}.{ending}", report.figure));
    let put = |ending: &str, text: String| {
        let path = path(ending);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let json = serde_json::to_string_pretty(report).context("cannot make JSON")?;
    put("json", json + "\n")?;
    put("csv", report.csv())?;
    put("svg", plot::svg(report)?)?;
    plot::png(report, &path("png"))
}

/// List of figures, as a table and as JSON.
#[derive(Debug)]
pub struct List(pub &'static [Figure]);

/// A line of the list.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    title: &'static str,
    paper: &'static str,
    workload: &'static str,
    by: &'static str,
}

impl List {
    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.0.iter().map(|figure| Entry {
            name: figure.name,
            title: figure.title,
            paper: figure.paper,
            workload: figure.workload,
            by: match figure.work {
                Work::Machine(_) => "machine",
                Work::Simulated(_) | Work::Paths(..) => "simulator",
            },
        })
    }
}

impl Serialize for List {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |entry: Entry| {
            let columns = [entry.name, entry.by, entry.paper, entry.title];
            columns.map(str::to_owned).to_vec()
        };
        let header = ["figure", "by", "paper", "shows"];
        let table = load::aligned(&header, self.entries().map(row), 4);
        f.write_str(table.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::FIGURES;

    fn names(words: &[&str]) -> Result<Vec<&'static str>> {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        Ok(chosen(&words, &|_| {})?
            .iter()
            .map(|figure| figure.name)
            .collect())
    }

    #[test]
    fn figures_are_run_once_however_they_are_named() {
        let found = names(&["blk-switch-3b", "blk-switch-3", "blk-switch-3a"]).unwrap();
        let expected = [
            "blk-switch-3b",
            "blk-switch-3a",
            "blk-switch-3c",
            "blk-switch-3d",
        ];
        assert_eq!(found, expected);
        let renamed = [
            ("reflex-1", "sim-reflex-1"),
            ("reflex/6a", "sim-reflex-6a"),
            ("reflex-6b-machine", "reflex-6b"),
        ];
        for (old, new) in renamed {
            assert_eq!(names(&[old]).unwrap(), [new]);
        }
        let error = names(&["blk-switch-1"]).unwrap_err().to_string();
        assert!(error.contains("figure list"), "{error}");
    }

    #[test]
    fn what_needs_a_missing_program_is_left_out_with_its_claims() {
        let figure = named("reflex-table2")[0];
        let Work::Machine(plan) = figure.work else {
            panic!("it is measured");
        };
        let mut all = plan(Extent::Quick);
        assert_eq!(leave_out(&mut all, |_| true), [""; 0]);
        assert_eq!(all, plan(Extent::Quick));
        let mut without = plan(Extent::Quick);
        let reasons = leave_out(&mut without, |program| program != "tgtd");
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("apt-get install tgt"), "{reasons:?}");
        assert_eq!(without.series.len(), all.series.len() - 1);
        assert_eq!(without.points.len(), all.points.len() - 1);
        assert_eq!(without.claims.len(), all.claims.len() - 1);
    }

    #[test]
    fn the_list_names_every_figure() {
        let text = List(FIGURES).to_string();
        assert!(
            FIGURES.iter().all(|figure| text.contains(figure.name)),
            "{text}"
        );
        let json = serde_json::to_value(List(FIGURES)).unwrap();
        assert_eq!(json.as_array().map(Vec::len), Some(FIGURES.len()));
    }
}
