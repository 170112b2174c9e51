//! `switchyard sim calibrate`: what this machine charges for what the model does.
//!
//! Every number is measured on real threads and sockets, several times, and the second least
//! counts: what others do on the machine meanwhile is no cost of ours, and a single lucky time is
//! not what the machine charges.

mod sockets;
mod stack;
mod threads;

use crate::args::CalibrateArgs;
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result, bail};
use base::units::CoreId;
use sim::model::Costs;
use std::time::Instant;

/// Measures, and writes the costs file.
pub(super) fn run(args: &CalibrateArgs, output: Output) -> Result<Outcome> {
    let costs = measure(two(&args.cores)?, output)?;
    let text = costs.to_toml();
    if let Some(path) = &args.output {
        std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if output.json {
        output.result(&costs, "")?;
    } else if args.output.is_none() {
        print(format_args!("{text}"))?;
    }
    Ok(Outcome::Done)
}

/// The two processors that a command line names.
pub(super) fn two(cores: &crate::args::Cores) -> Result<[CoreId; 2]> {
    let &[first, second] = &cores.0[..] else {
        bail!("--cores takes two processors, such as 0,1");
    };
    let cores = [CoreId(first), CoreId(second)];
    reactor::placement::check_allowed(&cores)?;
    Ok(cores)
}

/// Everything that a run is charged for on these two processors.
pub(super) fn measure(cores: [CoreId; 2], output: Output) -> Result<Costs> {
    let step = |what: &str| output.note(format_args!("measuring {what}"));
    step("threads");
    let core = threads::measure(cores)?;
    step("sockets");
    let socket = sockets::measure(cores)?;
    step("the stack");
    let stack = stack::measure(cores)?;
    let costs = Costs {
        origin: "measured by `switchyard sim calibrate`".to_owned(),
        core,
        stack,
        socket,
    };
    costs
        .validate()
        .context("this machine was too busy to be measured; try again")?;
    Ok(costs)
}

/// How often everything is measured.
const BATCHES: usize = 5;

/// The second least of some measurements of the same.
fn quiet(mut measure: impl FnMut() -> Result<u64>) -> Result<u64> {
    let [quiet] = quiet_of_each(|| Ok([measure()?]))?;
    Ok(quiet)
}

/// The same of several numbers that are measured together.
fn quiet_of_each<const N: usize>(
    mut measure: impl FnMut() -> Result<[u64; N]>,
) -> Result<[u64; N]> {
    let batches: Vec<_> = (0..BATCHES).map(|_| measure()).collect::<Result<_>>()?;
    Ok(std::array::from_fn(|place| {
        let mut numbers: Vec<_> = batches.iter().map(|batch| batch[place]).collect();
        quantile(&mut numbers, 250)
    }))
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
        let mut batches = [[1, 9], [5, 2], [3, 3], [4, 4], [2, 5]].into_iter();
        let quiet = quiet_of_each(|| Ok(batches.next().expect("five"))).unwrap();
        assert_eq!(quiet, [2, 3]);
    }
}
