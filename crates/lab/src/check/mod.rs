//! Runs with injected faults, by seed: many in worker processes, or one in this process.
//!
//! A run that fails ends its process. A worker is therefore this program, which runs seeds in turn
//! and prints a line for each completed seed. The first missing line is the failed seed, which is
//! then minimised.

mod args;
mod mutations;
mod report;
mod search;
mod worker;

pub use args::{CheckArgs, MutationsArgs};
pub use mutations::{MutationsReport, Verdict, mutations};
pub use report::{CheckReport, Failure};

use anyhow::{Context as _, Result};
use search::Search;
use std::fmt::Arguments;
use std::time::Instant;

/// Runs one seed in this process, or many seeds in workers, or acts as such a worker. A worker
/// returns no report; it prints a line per seed.
///
/// `print` receives the lines of a worker and of a trace.
///
/// # Errors
/// A mutation that this program does not have; processes that cannot be started; lines that cannot
/// be printed.
pub fn check(
    args: &CheckArgs,
    print: fn(Arguments<'_>) -> Result<()>,
) -> Result<Option<CheckReport>> {
    if let Some(mutation) = args.mutation {
        mutations::require()?;
        base::mutation::set(mutation);
    }
    // Cores are created and dropped with their buffers, few of which are used: with transparent
    // huge pages, each huge page would be cleared for one buffer. A kernel without huge pages
    // returns an error, which has no effect.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    if args.worker {
        let first = args.from.unwrap_or_default();
        for seed in first..first + args.seeds {
            let survived = sim::check::run(&args.options(seed));
            let line = serde_json::to_string(&survived).context("cannot make JSON")?;
            print(format_args!("{line}\n"))?;
        }
        return Ok(None);
    }
    let Some(seed) = args.seed else {
        return Search::new(args).run().map(Some);
    };
    let began = Instant::now();
    if args.trace {
        sim::trace::listen(Some(Box::new(move |line| {
            // If the reader closed the pipe, it needs no more lines.
            let _ = print(format_args!("{line}\n"));
        })));
    }
    let report = CheckReport {
        seeds: 1,
        survived: sim::check::run(&args.options(seed)),
        ..CheckReport::default()
    };
    Ok(Some(report.after(began.elapsed())))
}

/// Runs `job` on `jobs` threads, and waits for all of them.
fn in_parallel(jobs: u16, job: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..jobs).map(|_| scope.spawn(&job)).collect();
        let mut ended = jobs.into_iter().map(|job| job.join());
        ended.try_for_each(|ended| ended.expect("a job does not panic"))
    })
}
