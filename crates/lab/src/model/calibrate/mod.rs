//! `switchyard sim calibrate`: what this machine charges for what the model does.
//!
//! Everything is measured on real threads and sockets, once in each of some passes that are spread
//! over time: a processor that shares its core with a stranger's runs at two speeds, and what it
//! charges is what it charges on average. Of each number the passes' middle half counts: what
//! others do on the machine now and then is no cost of ours.

mod bulk;
mod sockets;
mod stack;
mod threads;

use crate::Note;
use anyhow::{Context as _, Result, bail};
use base::units::CoreId;
use load::Cores;
use sim::model::Costs;
use std::time::Instant;

/// The two processors that a command line names.
pub(super) fn two(cores: &Cores) -> Result<[CoreId; 2]> {
    let &[first, second] = &cores.0[..] else {
        bail!("--cores takes two processors, such as 0,1");
    };
    let cores = [CoreId(first), CoreId(second)];
    reactor::placement::check_allowed(&cores)?;
    Ok(cores)
}

/// Measures everything that a run is charged for on these two processors.
///
/// # Errors
/// Other than two processors, those that may not be used, and a machine that is too busy.
pub fn calibrate(cores: &Cores, note: Note<'_>) -> Result<Costs> {
    let mut calibration = Calibration::new(two(cores)?);
    for pass in 1..=PASSES {
        note(format_args!("pass {pass} of {PASSES}"));
        calibration.pass()?;
    }
    calibration.costs()
}

/// Measurements so far.
#[derive(Debug)]
pub(super) struct Calibration {
    cores: [CoreId; 2],
    threads: threads::Samples,
    sockets: Vec<sockets::Sample>,
    stack: Vec<stack::Sample>,
}

impl Calibration {
    /// Nothing yet, of these two processors.
    pub(super) fn new(cores: [CoreId; 2]) -> Self {
        Self {
            cores,
            threads: threads::Samples::default(),
            sockets: Vec::new(),
            stack: Vec::new(),
        }
    }

    /// Measures everything once more.
    pub(super) fn pass(&mut self) -> Result<()> {
        self.threads.measure(self.cores)?;
        self.sockets.push(sockets::measure(self.cores)?);
        self.stack.push(stack::measure(self.cores)?);
        Ok(())
    }

    /// Returns the costs by all passes.
    pub(super) fn costs(&self) -> Result<Costs> {
        let costs = Costs {
            origin: "measured by `switchyard sim calibrate`".to_owned(),
            core: self.threads.costs(),
            stack: stack::costs(&self.stack),
            socket: sockets::costs(&self.sockets),
        };
        costs
            .validate()
            .context("this machine was too busy to be measured; try again")?;
        Ok(costs)
    }
}

/// Number of times that `sim calibrate` measures everything.
const PASSES: usize = 8;

/// Of several times that were measured together, again and again, what each comes to: by the mean
/// rate of the middle half of its measurements, since what is done in a second is a sum of rates.
fn typical_of_each<const N: usize>(samples: &[[u64; N]]) -> [u64; N] {
    std::array::from_fn(|place| {
        let mut numbers: Vec<_> = samples.iter().map(|sample| sample[place]).collect();
        numbers.sort_unstable();
        let middle = &numbers[numbers.len() / 4..numbers.len() - numbers.len() / 4];
        let rates = middle.iter().map(|&number| 1.0 / number.max(1) as f64);
        // Of no measurements that is no number, and rounded to none.
        rounded(middle.len() as f64 / rates.sum::<f64>())
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time between those that were measured"
)]
const fn rounded(time: f64) -> u64 {
    time.round() as u64
}

/// Nanoseconds since `since`.
fn nanos_since(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Of these numbers the one that `permille` of them do not exceed; none is zero.
fn quantile(numbers: &mut [u64], permille: usize) -> u64 {
    numbers.sort_unstable();
    let place = numbers.len().saturating_sub(1) * permille / 1_000;
    numbers.get(place).copied().unwrap_or(0)
}

fn median(numbers: &mut [u64]) -> u64 {
    quantile(numbers, 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_numbers_are_among_them() {
        assert_eq!(median(&mut []), 0);
        assert_eq!(median(&mut [3, 1, 2]), 2);
        assert_eq!(quantile(&mut [5, 1, 9, 7], 990), 7);
    }

    #[test]
    fn the_middle_half_of_the_passes_counts() {
        // 30 and 60 in turns are two rates, and their mean is that of 40.
        let passes = [[1, 60], [30, 9], [60, 900], [30, 30], [200, 60], [60, 30]];
        assert_eq!(typical_of_each(&passes), [40, 40]);
        assert_eq!(typical_of_each(&[[7]]), [7]);
        assert_eq!(typical_of_each::<1>(&[]), [0]);
    }
}
