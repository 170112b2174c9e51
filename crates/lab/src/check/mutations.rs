//! Mutations (deliberate bugs), and the seeds with which the checkers find them.

use super::args::MutationsArgs;
use super::in_parallel;
use super::worker::Worker;
use anyhow::{Result, ensure};
use base::mutation::{self, Mutation};
use serde::Serialize;
use sim::check::Options;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A run that takes longer counts as hanging. Runs take milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Most characters kept of a checker's message.
const WORDS_MAX: usize = 120;

/// Outcome of every mutation.
#[derive(Debug, Serialize)]
pub struct MutationsReport {
    /// Most seeds tried per mutation.
    pub seeds: u64,
    /// The verdict on each mutation.
    pub mutations: Vec<Verdict>,
}

impl MutationsReport {
    /// Returns true if all mutations were found.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.mutations.iter().all(|verdict| verdict.seed.is_some())
    }
}

/// Outcome of one mutation.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// The mutation's name.
    pub name: &'static str,
    /// Its bug.
    pub text: &'static str,
    /// The first seed that finds it, and passes without it.
    pub seed: Option<u64>,
    /// The checker's message.
    pub said: String,
}

/// Enables each mutation in processes of its own; `note` receives each verdict.
///
/// # Errors
/// A program without mutations; processes that cannot be started.
pub fn mutations(
    args: &MutationsArgs,
    note: &(dyn Fn(fmt::Arguments<'_>) + Sync),
) -> Result<MutationsReport> {
    require()?;
    let which = if args.only.is_empty() {
        Mutation::ALL
    } else {
        &args.only
    };
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    in_parallel(args.jobs, || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&mutation) = which.get(number) else {
                return Ok(());
            };
            let verdict = verdict(mutation, args)?;
            note(format_args!("{verdict}"));
            let mut found = found.lock().expect("a job does not panic");
            found.insert(number, verdict);
        }
    })?;
    let found = found.into_inner().expect("a job does not panic");
    Ok(MutationsReport {
        seeds: args.seeds,
        mutations: found.into_values().collect(),
    })
}

/// # Errors
/// This program has no mutations; the error shows how to build one that has.
pub(super) fn require() -> Result<()> {
    ensure!(
        mutation::BUILT_IN,
        "this program was built without mutations; build and run one that has them: \
         cargo run --release -p switchyard-lab --features mutations -- sim mutations"
    );
    Ok(())
}

/// Finds the first seed that detects a mutation.
fn verdict(mutation: Mutation, args: &MutationsArgs) -> Result<Verdict> {
    let mut verdict = Verdict {
        name: mutation.name(),
        text: mutation.text(),
        seed: None,
        said: String::new(),
    };
    let until = args.from.saturating_add(args.seeds);
    let mut seed = args.from;
    while seed < until {
        let options = Options::default();
        let worker = Worker {
            options: &options,
            mutation: Some(mutation),
            patience: PATIENCE,
        };
        let Some(said) = worker.run(seed, until, |_| seed += 1)? else {
            break;
        };
        let unchanged = Worker {
            options: &Options {
                seed,
                ..Options::default()
            },
            mutation: None,
            patience: PATIENCE,
        };
        if !unchanged.fails() {
            verdict.seed = Some(seed);
            verdict.said = short(&said);
            break;
        }
        seed += 1;
    }
    Ok(verdict)
}

/// Returns the message of a panic on one line, without its location.
fn short(said: &str) -> String {
    let told = said.lines().find(|line| !line.contains(" panicked at "));
    let told = told.unwrap_or_default();
    match told.char_indices().nth(WORDS_MAX) {
        Some((at, _)) => format!("{}…", &told[..at]),
        None => told.to_owned(),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24} ", self.name)?;
        match self.seed {
            Some(seed) => write!(f, "seed {seed:>4}: {}", self.said),
            None => write!(f, "not found: {}", self.text),
        }
    }
}

impl fmt::Display for MutationsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.mutations.iter().filter(|v| v.seed.is_some()).count();
        writeln!(
            f,
            "{found} of {} mutations were found within {} seeds",
            self.mutations.len(),
            self.seeds
        )?;
        let missed = self.mutations.iter().filter(|v| v.seed.is_none());
        missed.into_iter().try_for_each(|v| writeln!(f, "{v}"))
    }
}
