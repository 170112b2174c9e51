//! Calibration: loads of all kinds, raised until reads come late, and the model that they lead to.
//! `[ReFlex §3.2.1]`
//!
//! What is this: a [`Probe`] takes a load and says what came of it: an emulated device in virtual
//! time ([`Emulated`]), or any device by the load generator ([`OnDevice`]). [`calibrate`] chooses
//! the loads one after the other and hands what was measured to [`qos::fit`]; [`Calibration`] is
//! the outcome, as a table and as JSON. [`run`] does all of it for a [`Subject`]. The command line
//! owns the device, the files, and the question of whether writing is allowed.
//!
//! What must never happen: a write to a device that holds data, or a number in a model that was
//! neither measured nor given.

mod emulated;
mod on_device;
mod plan;
mod report;
mod run;
mod sweep;

#[cfg(test)]
mod tests;

pub use emulated::Emulated;
pub use on_device::{OnDevice, OnDeviceOptions};
pub use plan::{Plan, Steps};
pub use report::Calibration;
pub use run::{Options, Subject, model, run};
pub use sweep::Progress;

use anyhow::{Context as _, Result, bail};
use qos::fit::{Kind, Known, Measurement};
use std::sync::atomic::{AtomicBool, Ordering};
use sweep::Sweep;

/// A device that takes a load and reports its latencies.
pub trait Probe {
    /// Requests of a kind, arriving independently of each other at so many a second.
    ///
    /// # Errors
    /// When the device cannot be loaded.
    fn measure(&mut self, kind: Kind, iops: u64) -> Result<Measurement>;
}

/// Loads what `probe` stands for with everything that is planned, and fits a model. `stop` ends it
/// without one.
///
/// # Errors
/// When the device cannot be loaded, when it was stopped, and when what was measured is no model.
pub fn calibrate(
    plan: &Plan,
    known: Known,
    probe: &mut dyn Probe,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Calibration> {
    let mut stoppable = Stoppable { probe, stop };
    let measured = Sweep::new(plan).run(&mut stoppable, progress)?;
    let fit = qos::fit::fit(&measured, known).context("no model")?;
    Ok(Calibration { fit, measured })
}

/// Looks whether to stop before and after each load: what was cut short is no measurement.
struct Stoppable<'a> {
    probe: &'a mut dyn Probe,
    stop: &'a AtomicBool,
}

impl Probe for Stoppable<'_> {
    fn measure(&mut self, kind: Kind, iops: u64) -> Result<Measurement> {
        let measured = if self.stop.load(Ordering::Relaxed) {
            None
        } else {
            Some(self.probe.measure(kind, iops)?)
        };
        match measured {
            Some(measured) if !self.stop.load(Ordering::Relaxed) => Ok(measured),
            _ => bail!("interrupted; no model"),
        }
    }
}
