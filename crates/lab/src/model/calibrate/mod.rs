//! `lab sim calibrate`: measures this machine's costs of the operations in the model.
//!
//! Everything is measured on real threads and sockets, once in each of several passes that are
//! spread over time: a hardware thread that shares its core with another virtual machine runs at
//! two speeds, and its cost is the average. For each number the middle half of the passes counts,
//! because occasional disturbances by other processes are not part of the cost.

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

/// Returns the two processors named on a command line.
pub(super) fn two(cores: &Cores) -> Result<[CoreId; 2]> {
    let &[first, second] = &cores.0[..] else {
        bail!("--cores takes two processors, such as 0,1");
    };
    let cores = [CoreId(first), CoreId(second)];
    reactor::placement::check_allowed(&cores)?;
    Ok(cores)
}

/// Measures all costs of the model on these two processors.
///
/// # Errors
/// Not exactly two processors; processors that may not be used; a machine that is too busy.
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
    /// No measurements yet; for these two processors.
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

    /// Returns the costs from all passes.
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

/// Number of passes of `sim calibrate`.
const PASSES: usize = 8;
