//! Repeats disturbed measurements.
//!
//! On a virtual machine, the hypervisor and kernel threads take processors away for milliseconds.
//! That dominates the tail of a short run, whatever system it measures. The kernel counts both, so
//! a run that lost too much is discarded by a criterion that is independent of its result.

use super::disturbance::Disturbance;
use super::measure::{Effort, Runner};
use super::sample::Sample;
use super::scenario::Scenario;
use anyhow::Result;
use serde::Serialize;

/// Most measurements of the same run.
pub const TRIES_MAX: u8 = 100;

/// A runner that repeats disturbed runs, and keeps the least disturbed attempt of each.
#[derive(Debug)]
pub struct Quiet<R> {
    inner: R,
    tries: u8,
    seen: Disturbances,
}

/// Disturbances of the kept runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbances {
    /// Runs that were measured.
    pub runs: u64,
    /// Discarded measurements.
    pub repeated: u64,
    /// Runs above [`Disturbance::QUIET`] in every attempt, which count nevertheless.
    pub disturbed: u64,
    /// Largest part of the processors' time that the hypervisor took during one run, in permille.
    pub stolen_permille_max: f64,
    /// Largest part that other processes used during one run, in permille.
    pub others_permille_max: f64,
    /// Smallest and largest time in nanoseconds that a cache line took from one processor to
    /// another; 0 if not measured.
    pub apart_ns: [f64; 2],
}

impl<R: Runner> Quiet<R> {
    /// Measures each run up to `tries` times: 1 to [`TRIES_MAX`].
    ///
    /// # Panics
    /// On any other number.
    pub fn new(inner: R, tries: u8) -> Self {
        assert!((1..=TRIES_MAX).contains(&tries), "{tries} tries");
        Self {
            inner,
            tries,
            seen: Disturbances::default(),
        }
    }

    /// Returns the disturbances since the last call.
    pub fn take(&mut self) -> Disturbances {
        std::mem::take(&mut self.seen)
    }
}

impl<R: Runner> Runner for Quiet<R> {
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        let inner = &mut self.inner;
        self.seen.least(self.tries, || {
            let sample = inner.run(scenario, effort)?;
            let disturbance = sample.disturbance;
            Ok((sample, disturbance))
        })
    }
}

impl Disturbances {
    /// Measures up to `tries` times, until a measurement is undisturbed, and returns the least
    /// disturbed one.
    ///
    /// # Errors
    /// Those of the measurement.
    pub fn least<T>(
        &mut self,
        tries: u8,
        mut measure: impl FnMut() -> Result<(T, Disturbance)>,
    ) -> Result<T> {
        let (mut best, mut disturbance) = measure()?;
        let mut tried = 1;
        while disturbance.degree() > 1.0 && tried < tries {
            let (again, then) = measure()?;
            tried += 1;
            if then.degree() < disturbance.degree() {
                (best, disturbance) = (again, then);
            }
        }
        let Disturbance {
            stolen,
            others,
            apart_ns,
        } = disturbance;
        if apart_ns > 0.0 {
            let [least, most] = self.apart_ns;
            let least = if least > 0.0 { least } else { apart_ns };
            self.apart_ns = [least.min(apart_ns), most.max(apart_ns)];
        }
        self.runs += 1;
        self.repeated += u64::from(tried - 1);
        self.disturbed += u64::from(disturbance.degree() > 1.0);
        self.stolen_permille_max = self.stolen_permille_max.max(stolen);
        self.others_permille_max = self.others_permille_max.max(others);
        Ok(best)
    }
}

impl std::fmt::Display for Disturbances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Disturbance { stolen, others, .. } = Disturbance::QUIET;
        write!(
            f,
            "{} attempts of {} runs were discarded because the hypervisor took more than \
             {stolen} ‰ of processor time or other processes more than {others} ‰; {} runs were \
             disturbed in every attempt, the worst lost {:.0} ‰ and {:.0} ‰",
            self.repeated,
            self.runs,
            self.disturbed,
            self.stolen_permille_max,
            self.others_permille_max
        )?;
        match self.apart_ns {
            [_, 0.0] => Ok(()),
            [least, most] => write!(
                f,
                "\na cache line took {least:.0} to {most:.0} ns from one processor to another"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::scenario::{Layout, System};
    use std::time::Duration;

    /// A sequence of runs with these parts of time taken by the hypervisor and by other processes.
    struct Losing(Vec<(f64, f64)>);

    impl Runner for Losing {
        fn run(&mut self, _: &Scenario, _: &Effort) -> Result<Sample> {
            let (stolen, others) = self.0.remove(0);
            Ok(Sample {
                disturbance: Disturbance {
                    stolen,
                    others,
                    apart_ns: stolen * 10.0,
                },
                ..Sample::default()
            })
        }
    }

    fn run(quiet: &mut Quiet<Losing>) -> (f64, f64) {
        let scenario = Scenario::mix(System::SWITCHYARD, Layout::Split, 1, 1);
        let effort = Effort {
            runs: 1,
            measured: Duration::from_secs(1),
            warmup: Duration::ZERO,
            seed: 1,
        };
        let disturbance = quiet.run(&scenario, &effort).unwrap().disturbance;
        let Disturbance { stolen, others, .. } = disturbance;
        (stolen, others)
    }

    #[test]
    fn a_quiet_run_is_measured_once_and_a_disturbed_one_until_it_is_quiet() {
        let runs = [(0.0, 5.0), (9.0, 0.0), (0.0, 6.0), (2.0, 1.0)];
        let mut quiet = Quiet::new(Losing(runs.to_vec()), 4);
        assert_eq!((run(&mut quiet), run(&mut quiet)), (runs[0], runs[3]));
        let seen = quiet.take();
        assert_eq!((seen.runs, seen.repeated, seen.disturbed), (2, 2, 0));
        assert_eq!(quiet.take(), Disturbances::default());
    }

    #[test]
    fn of_disturbed_runs_the_least_disturbed_counts() {
        let mut quiet = Quiet::new(Losing(vec![(9.0, 1.0), (7.0, 2.0), (0.0, 20.0)]), 3);
        assert_eq!(run(&mut quiet), (7.0, 2.0));
        let seen = quiet.take();
        assert_eq!((seen.repeated, seen.disturbed), (2, 1));
        assert_eq!(seen.apart_ns, [70.0, 70.0]);
        let said = seen.to_string();
        assert!(
            said.ends_with("took 70 to 70 ns from one processor to another"),
            "{said}"
        );
        assert_eq!(
            (seen.stolen_permille_max, seen.others_permille_max),
            (7.0, 2.0)
        );
    }
}
