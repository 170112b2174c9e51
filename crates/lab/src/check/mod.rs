//! Runs with faults in them, by seed: many in processes of their own, and one in this process.
//!
//! A run that fails ends its process. So a worker is this very program, which runs seeds in turn and
//! prints a line for each that is over; the first that does not come is the one that failed, and is
//! looked for in its shortest form.

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

/// Runs what the arguments say: one seed, many in processes of their own, or, as such a process,
/// those of its parent. The last has no report, but a line for each seed.
///
/// `print` gets the lines of a worker and of a trace.
///
/// # Errors
/// A mutation that this program does not have, processes that cannot be started, lines that cannot
/// be printed.
pub fn check(
    args: &CheckArgs,
    print: fn(Arguments<'_>) -> Result<()>,
) -> Result<Option<CheckReport>> {
    if let Some(mutation) = args.mutation {
        mutations::require()?;
        base::mutation::set(mutation);
    }
    // Cores come and go with their buffers, of which few are used: each huge page of them would be
    // cleared for one. A kernel that has none says so; nothing depends on it.
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
            // The reader that closed the pipe has read enough.
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

/// Runs `job` on so many threads, and waits for all of them.
fn in_parallel(jobs: u16, job: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..jobs).map(|_| scope.spawn(&job)).collect();
        let mut ended = jobs.into_iter().map(|job| job.join());
        ended.try_for_each(|ended| ended.expect("a job does not panic"))
    })
}
