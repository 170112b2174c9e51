//! `switchyard sim check`: runs with everything in them, and the shortest form of one that fails.

use super::mutations;
use super::worker::{Worker, arguments};
use crate::args::SimCheckArgs;
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result};
use base::mutation;
use serde::Serialize;
use sim::check::{self, Options, Survived};
use std::fmt::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seeds that a process runs in turn, at most.
const CHUNK: u64 = 100;

/// After so many seeds that fail, no others are looked for.
const FAILURES_MAX: usize = 5;

/// Outcome of all runs.
#[derive(Debug, Default, Serialize)]
struct Answer {
    /// Seeds that were run.
    seeds: u64,
    #[serde(flatten)]
    survived: Survived,
    /// Requests that one process simulates in a second.
    requests_per_second_per_job: f64,
    failures: Vec<Failure>,
}

/// A run in which something happened that never may.
#[derive(Clone, Debug, Serialize)]
struct Failure {
    seed: u64,
    /// Description of the failure.
    message: String,
    /// The shortest run found in which something fails.
    command: String,
}

/// Runs one seed, or many in processes of their own.
///
/// # Errors
/// Processes that cannot be started.
pub(super) fn run(args: &SimCheckArgs, output: Output) -> Result<Outcome> {
    if let Some(mutation) = args.mutation {
        mutations::require()?;
        mutation::set(mutation);
    }
    if args.worker {
        return work(args);
    }
    if let Some(seed) = args.seed {
        let began = Instant::now();
        if args.trace {
            sim::trace::listen(Some(Box::new(|line| {
                // The reader that closed the pipe has read enough.
                let _ = print(format_args!("{line}\n"));
            })));
        }
        let survived = check::run(&options(args, seed));
        let answer = Answer::of(1, survived, began.elapsed(), Vec::new());
        output.result(&answer, &answer)?;
        return Ok(Outcome::Done);
    }
    let search = Search::new(args);
    let answer = search.run()?;
    output.result(&answer, &answer)?;
    Ok(if answer.failures.is_empty() {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

fn options(args: &SimCheckArgs, seed: u64) -> Options {
    Options {
        seed,
        without: args.without.iter().copied().collect(),
        requests: args.requests,
    }
}

/// Runs the seeds of one process. Its parent reads a line for each that is over.
fn work(args: &SimCheckArgs) -> Result<Outcome> {
    let first = args.from.unwrap_or_default();
    for seed in first..first + args.seeds {
        let survived = check::run(&options(args, seed));
        let line = serde_json::to_string(&survived).context("cannot make JSON")?;
        print(format_args!("{line}\n"))?;
    }
    Ok(Outcome::Done)
}

/// Many seeds, dealt out to processes: a run that fails ends its process.
struct Search<'a> {
    args: &'a SimCheckArgs,
    first: u64,
    /// The next seed that no process has.
    next: AtomicU64,
    failed: AtomicUsize,
    answer: Mutex<Answer>,
}

impl<'a> Search<'a> {
    fn new(args: &'a SimCheckArgs) -> Self {
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
            answer: Mutex::default(),
        }
    }

    fn run(self) -> Result<Answer> {
        let began = Instant::now();
        std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..self.args.jobs.max(1))
                .map(|_| scope.spawn(|| self.job()))
                .collect();
            let ended = jobs.into_iter().map(|job| job.join());
            ended
                .into_iter()
                .try_for_each(|ended| ended.expect("a job does not panic"))
        })?;
        let answer = self.answer.into_inner().expect("a job does not panic");
        let jobs = u32::try_from(self.args.jobs.max(1)).unwrap_or(u32::MAX);
        let took = began.elapsed() * jobs;
        Ok(Answer::of(
            answer.seeds,
            answer.survived,
            took,
            answer.failures,
        ))
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

    /// Runs these seeds up to the first that fails. Returns the one after.
    fn seeds(&self, first: u64, until: u64) -> Result<u64> {
        let mut seed = first;
        let options = options(self.args, first);
        let said = self.worker(&options).run(first, until, |survived| {
            let mut answer = self.answer.lock().expect("a job does not panic");
            answer.seeds += 1;
            answer.survived.add(survived);
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
        let mut answer = self.answer.lock().expect("a job does not panic");
        answer.seeds += 1;
        answer.failures.push(failure);
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
    let mut line = format!("switchyard sim check --seed {}", options.seed);
    for argument in arguments(options) {
        let _ = write!(line, " {}", argument.replace('=', " "));
    }
    line
}

impl Answer {
    fn of(seeds: u64, survived: Survived, took: Duration, failures: Vec<Failure>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let requests = survived.requests as f64;
        Self {
            seeds,
            survived,
            requests_per_second_per_job: requests / took.as_secs_f64().max(1e-9),
            failures,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survived = &self.survived;
        write!(
            f,
            "{} seeds: {} requests and {} faults survived, {} requests failed for a reason; \
             {:.0} requests/s for each job",
            self.seeds,
            survived.requests,
            survived.faults(),
            survived.failed,
            self.requests_per_second_per_job,
        )?;
        for (kind, count) in &survived.faults {
            write!(f, "\n  {count:>10} {kind}")?;
        }
        for failure in &self.failures {
            write!(
                f,
                "\n\nseed {} failed:\n{}\nits shortest form:\n  {}",
                failure.seed, failure.message, failure.command
            )?;
        }
        Ok(())
    }
}
