//! Runs many seeds, and minimises each run that fails.

use super::args::CheckArgs;
use super::in_parallel;
use super::report::{CheckReport, Failure};
use super::worker::{Worker, arguments};
use anyhow::Result;
use sim::check::{self, Options};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most seeds that a process runs in turn.
const CHUNK: u64 = 100;

/// Number of failing seeds after which the search ends.
const FAILURES_MAX: usize = 5;

/// Many seeds, distributed to processes, because a run that fails ends its process.
pub(super) struct Search<'a> {
    args: &'a CheckArgs,
    first: u64,
    /// The next unassigned seed.
    next: AtomicU64,
    failed: AtomicUsize,
    report: Mutex<CheckReport>,
}

impl<'a> Search<'a> {
    pub(super) fn new(args: &'a CheckArgs) -> Self {
        let fresh = || {
            #[expect(clippy::disallowed_methods, reason = "a seed")]
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(0, |now| now.as_secs() << 20)
        };
        let first = args.from.unwrap_or_else(fresh);
        Self {
            args,
            first,
            next: AtomicU64::new(first),
            failed: AtomicUsize::new(0),
            report: Mutex::default(),
        }
    }

    pub(super) fn run(self) -> Result<CheckReport> {
        let began = Instant::now();
        in_parallel(self.args.jobs, || self.job())?;
        let report = self.report.into_inner().expect("a job does not panic");
        Ok(report.after(began.elapsed() * u32::from(self.args.jobs)))
    }

    /// Takes seeds until none are left.
    fn job(&self) -> Result<()> {
        let end = self.first.saturating_add(self.args.seeds);
        loop {
            let mut seed = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            let until = seed.saturating_add(CHUNK).min(end);
            while seed < until {
                if self.failed.load(Ordering::Relaxed) >= FAILURES_MAX {
                    return Ok(());
                }
                seed = self.seeds(seed, until)?;
            }
            if until == end {
                return Ok(());
            }
        }
    }

    /// Runs these seeds up to the first failure. Returns the next seed.
    fn seeds(&self, first: u64, until: u64) -> Result<u64> {
        let mut seed = first;
        let options = self.args.options(first);
        let said = self.worker(&options).run(first, until, |survived| {
            let mut report = self.report.lock().expect("a job does not panic");
            report.seeds += 1;
            report.survived.add(survived);
            seed += 1;
        })?;
        let Some(message) = said else {
            return Ok(seed);
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        let failed = Options { seed, ..options };
        let shortest = check::shrink(&failed, |options| self.worker(options).fails());
        let failure = Failure {
            seed,
            message,
            command: command_line(&shortest),
        };
        let mut report = self.report.lock().expect("a job does not panic");
        report.seeds += 1;
        report.failures.push(failure);
        Ok(seed + 1)
    }

    fn worker<'b>(&self, options: &'b Options) -> Worker<'b> {
        Worker {
            options,
            mutation: self.args.mutation,
            patience: Duration::MAX,
        }
    }
}

fn command_line(options: &Options) -> String {
    let mut line = format!("lab sim check --seed {}", options.seed);
    for argument in arguments(options) {
        let _ = write!(line, " {}", argument.replace('=', " "));
    }
    line
}
