//! `lab sim calibrate`: what this machine charges for what the model does.
//!
//! Everything is measured on real threads and sockets, once in each of some passes that are spread
//! over time: a processor that shares its core with a stranger's runs at two speeds, and what it
//! charges is what it charges on average. Of each number the passes' middle half counts: what
//! others do on the machine now and then is no cost of ours.

mod bulk;
mod sockets;
mod stack;
mod threads;
mod typical;

use crate::Note;
use anyhow::{Context as _, Result, bail};
use base::units::CoreId;
use load::Cores;
use sim::model::Costs;

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
            origin: "measured by `lab sim calibrate`".to_owned(),
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
