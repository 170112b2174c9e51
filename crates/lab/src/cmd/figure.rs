//! `lab figure`: reproduces the papers' figures on this machine.

use anyhow::{Context as _, Result, bail, ensure};
use cli::exit::Outcome;
use cli::output::Output;
use config::with_causes;
use indicatif::ProgressBar;
use switchyard_lab::figure::{
    Effort, Extent, FIGURES, Figure, FigureArgs, FigureReport, List, Progress, Quiet, Work, chosen,
    draw,
};
use switchyard_lab::model;
use switchyard_lab::process::MachineRunner;

/// The word that requests the list of figures.
const LIST: &str = "list";

/// Runs figures, writes their files, and reports which claims hold.
///
/// # Errors
/// An unknown figure, a folder that cannot be written, and runs that fail, for example on a machine
/// without two processors. The figures after a failed one still run.
pub fn run(args: &FigureArgs, output: Output) -> Result<Outcome> {
    if args.names.iter().any(|name| name == LIST) {
        ensure!(
            args.names.len() == 1,
            "\"{LIST}\" cannot be combined with names of figures"
        );
        let list = List(FIGURES);
        output.result(&list, &list)?;
        return Ok(Outcome::Done);
    }
    let figures = chosen(&args.names, &|text| output.note(text))?;
    let is_measured = |figure: &&&Figure| matches!(figure.work, Work::Machine(_));
    let measured = figures.iter().filter(is_measured).count();
    ensure!(
        args.seconds.is_none() || measured > 0,
        "--seconds: simulated figures have a fixed measured time; omit it"
    );
    ensure!(
        args.costs.is_none() || measured < figures.len(),
        "--costs: only simulated figures use a costs file; omit it"
    );
    let folder = &args.output;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut runner = Quiet::new(MachineRunner::new(folder), args.tries);
    let extent = if args.quick {
        Extent::Quick
    } else {
        Extent::Full
    };
    let runs = args.runs.map(usize::from);
    let effort = Effort::of(extent, runs, args.seconds, args.seed);
    let costs = model::costs(args.costs.as_deref())?;
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
                output.note(format_args!("{}: {}", figure.name, with_causes(&error)));
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
    Ok(Outcome::of(reports.iter().all(FigureReport::holds)))
}

/// Shows the progress of a measurement.
pub fn show(bar: &ProgressBar, name: &str, progress: Progress<'_>) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    let next = progress.next.map(|cell| format!(": {cell}"));
    bar.set_message(format!("{name}{}", next.unwrap_or_default()));
}
