//! Outcome of runs by seed.

use serde::Serialize;
use sim::check::Survived;
use std::fmt;
use std::time::Duration;

/// Outcome of all runs.
#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Seeds that were run.
    pub seeds: u64,
    /// The faults and requests of the runs that passed.
    #[serde(flatten)]
    pub survived: Survived,
    /// Requests that one process simulates per second.
    pub requests_per_second_per_job: f64,
    /// The runs that failed.
    pub failures: Vec<Failure>,
}

/// A failed run: a checker found a violation.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// Description of the failure.
    pub message: String,
    /// Command of the shortest failing run found.
    pub command: String,
}

impl CheckReport {
    /// Completes the report; `took` is the time of all processes together.
    pub(super) fn after(self, took: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let requests = self.survived.requests as f64;
        Self {
            requests_per_second_per_job: requests / took.as_secs_f64().max(1e-9),
            ..self
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survived = &self.survived;
        write!(
            f,
            "{} {}: {} requests and {} faults passed, {} requests failed as expected; \
             {:.0} requests/s per job",
            self.seeds,
            if self.seeds == 1 { "seed" } else { "seeds" },
            survived.requests,
            survived.faults(),
            survived.failed,
            self.requests_per_second_per_job,
        )?;
        for (kind, count) in &survived.faults {
            write!(f, "\n  {count:>10} {kind}")?;
        }
        for (path, count) in &survived.by_path {
            write!(
                f,
                "\n  {count:>10} requests by threads of hosts that share the path {path}"
            )?;
        }
        if survived.deposed > 0 {
            write!(
                f,
                "\n  {:>10} of their runners were replaced",
                survived.deposed
            )?;
        }
        for failure in &self.failures {
            write!(
                f,
                "\n\nseed {} failed:\n{}\nminimised:\n  {}",
                failure.seed, failure.message, failure.command
            )?;
        }
        Ok(())
    }
}
