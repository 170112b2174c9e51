//! `switchyard figure`: the papers' figures, run again on this machine.

use crate::args::FigureArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;
use lab::figure::{Effort, Extent, FIGURES, List, Progress, Quiet, Report, chosen, draw};
use lab::process::MachineRunner;
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
    let figures = chosen(&args.names, &|text| output.note(text))?;
    let folder = &args.output;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut runner = Quiet::new(MachineRunner::new(folder)?, args.tries);
    let (extent, effort) = effort(args);
    let costs = lab::model::costs(args.costs.as_deref())?;
    let mut reports = Vec::new();
    let mut failed = Vec::new();
    for figure in figures {
        let bar = output.count_bar();
        let progress = &mut |progress: Progress<'_>| show(&bar, figure.name, progress);
        let drawn = draw(
            figure,
            extent,
            &effort,
            &costs,
            &mut runner,
            folder,
            progress,
        );
        bar.finish_and_clear();
        match drawn {
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

/// Returns the time for which a run of `measured` is run before.
pub fn warmup(measured: Duration) -> Duration {
    (measured / WARMUP_DIVISOR).min(Duration::from_secs(1))
}

/// Shows how far a measurement is.
pub fn show(bar: &ProgressBar, name: &str, progress: Progress<'_>) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    let next = progress.next.map(|cell| format!(": {cell}"));
    bar.set_message(format!("{name}{}", next.unwrap_or_default()));
}
