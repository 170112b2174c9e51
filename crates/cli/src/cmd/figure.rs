//! `switchyard figure`: the papers' figures, run again on this machine.

use super::child::{MachineRunner, found};
use crate::args::FigureArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;
use lab::figure::{
    self, Effort, Extent, FIGURES, Figure, Plan, Point, Progress, Quiet, Report, Work, aligned,
};
use serde::Serialize;
use sim::model::Costs;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The word that means a list instead of a figure.
const LIST: &str = "list";

/// Repetitions and measured time: to quote, and to look.
const FULL: (usize, Duration) = (5, Duration::from_secs(3));
const QUICK: (usize, Duration) = (3, Duration::from_millis(500));

/// Of each run's measured time, this part is run before; never longer than a second.
const WARMUP_DIVISOR: u32 = 2;

/// Runs figures, writes their files, and says which claims hold.
///
/// # Errors
/// A name that means no figure, a machine without two processors, a folder that cannot be
/// written, and runs that fail; the figures after a failed one are run all the same.
pub fn run(args: &FigureArgs, output: Output) -> Result<Outcome> {
    if args.names.iter().any(|name| name == LIST) {
        ensure!(
            args.names.len() == 1,
            "\"{LIST}\" lists figures; name it alone"
        );
        let list = List(FIGURES);
        output.result(&list, &list)?;
        return Ok(Outcome::Done);
    }
    let figures = chosen(&args.names)?;
    let folder = &args.output;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut runner = Quiet::new(MachineRunner::new(folder)?, args.tries);
    let (extent, effort) = effort(args);
    let costs = super::sim::costs(args.costs.as_deref())?;
    let mut reports = Vec::new();
    let mut failed = Vec::new();
    for figure in figures {
        match draw(figure, extent, &effort, &costs, &mut runner, output, folder) {
            Ok(report) => {
                if !output.json {
                    output.result(&report, &report)?;
                    let files = folder.join(figure.name);
                    output.note(format_args!("{}.{{json,csv,svg,png}}\n", files.display()));
                }
                reports.push(report);
            }
            Err(error) => {
                output.note(format_args!("{}: {error:#}", figure.name));
                failed.push(figure.name);
            }
        }
    }
    if output.json {
        output.result(&reports, "")?;
    }
    if !failed.is_empty() {
        bail!("could not be measured: {}", failed.join(", "));
    }
    Ok(if reports.iter().all(Report::holds) {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Figure>> {
    let mut figures: Vec<&'static Figure> = Vec::new();
    for name in names {
        let found = figure::named(name);
        ensure!(
            !found.is_empty(),
            "there is no figure \"{name}\"; `switchyard figure {LIST}` lists them"
        );
        figures.extend(found);
    }
    // Each once, in the order they were named.
    let mut seen = std::collections::BTreeSet::new();
    figures.retain(|figure| seen.insert(figure.name));
    Ok(figures)
}

fn effort(args: &FigureArgs) -> (Extent, Effort) {
    let (extent, (runs, measured)) = if args.quick {
        (Extent::Quick, QUICK)
    } else {
        (Extent::Full, FULL)
    };
    let measured = args.seconds.unwrap_or(measured);
    let effort = Effort {
        runs: args.runs.map_or(runs, usize::from),
        measured,
        warmup: warmup(measured),
        seed: args.seed,
    };
    (extent, effort)
}

/// How long a run of `measured` is run before.
pub fn warmup(measured: Duration) -> Duration {
    (measured / WARMUP_DIVISOR).min(Duration::from_secs(1))
}

/// Shows how far a measurement is.
pub fn show(bar: &ProgressBar, name: &str, progress: Progress<'_>) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(format!("{name}: {}", progress.next));
}

fn draw(
    figure: &Figure,
    extent: Extent,
    effort: &Effort,
    costs: &Costs,
    runner: &mut Quiet<MachineRunner>,
    output: Output,
    folder: &Path,
) -> Result<Report> {
    let bar = output.count_bar();
    let mut plan = match figure.work {
        Work::Machine(plan) => plan(extent),
        Work::Simulated(_) => {
            bar.set_length(effort.runs as u64);
            bar.set_message(figure.name);
            let report = figure::simulate(figure, extent, effort, costs, &mut |run| {
                bar.set_position(run as u64);
            });
            bar.finish_and_clear();
            let report = report?;
            write(&report, folder)?;
            return Ok(report);
        }
    };
    let left_out = leave_out(&mut plan, found);
    let measured = figure::measure(&plan, effort, runner, &mut |progress| {
        show(&bar, figure.name, progress);
    });
    bar.finish_and_clear();
    let measured = measured?;
    let numbers = |cell: &_, metric| measured.numbers(&plan, cell, metric);
    let mut report = Report::of(figure, &plan, &plan.cells(), extent, effort, numbers)?;
    report.disturbances = Some(runner.take());
    report.left_out = left_out;
    write(&report, folder)?;
    Ok(report)
}

/// Takes out of a plan what needs programs that are not there; what, and why.
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

/// The numbers first: a picture can be drawn again from them.
fn write(report: &Report, folder: &Path) -> Result<()> {
    let path = |ending: &str| folder.join(format!("{}.{ending}", report.figure));
    let put = |ending: &str, text: String| {
        let path = path(ending);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let json = serde_json::to_string_pretty(report).context("cannot make JSON")?;
    put("json", json + "\n")?;
    put("csv", report.csv())?;
    put("svg", figure::plot::svg(report)?)?;
    figure::plot::png(report, &path("png"))
}

/// What there is.
#[derive(Debug)]
struct List(&'static [Figure]);

/// A line of it.
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
                Work::Simulated(_) => "simulator",
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
        let header = ["figure", "by", "paper", "shows"].map(str::to_owned);
        let row = |entry: Entry| {
            let Entry {
                name,
                title,
                paper,
                by,
                ..
            } = entry;
            [name, by, paper, title].map(str::to_owned).to_vec()
        };
        let rows: Vec<_> = std::iter::once(header.to_vec())
            .chain(self.entries().map(row))
            .collect();
        f.write_str(aligned(&rows, 4).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Result<Vec<&'static str>> {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        Ok(chosen(&words)?.iter().map(|figure| figure.name).collect())
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
        let error = names(&["blk-switch-1"]).unwrap_err().to_string();
        assert!(error.contains("figure list"), "{error}");
    }

    #[test]
    fn what_needs_a_missing_program_is_left_out_with_its_claims() {
        let figure = figure::named("reflex-table2")[0];
        let Work::Machine(plan) = figure.work else {
            panic!("it is measured");
        };
        let mut all = plan(Extent::Quick);
        assert_eq!(leave_out(&mut all, |_| true), [""; 0]);
        assert_eq!(all, plan(Extent::Quick));
        let mut without = plan(Extent::Quick);
        let reasons = leave_out(&mut without, |program| program != "tgtd");
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[0].contains("apt-get install tgt"), "{reasons:?}");
        assert_eq!(without.series.len(), all.series.len() - 2);
        assert_eq!(without.points.len(), all.points.len() - 3);
        assert_eq!(without.claims.len(), all.claims.len() - 2);
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
