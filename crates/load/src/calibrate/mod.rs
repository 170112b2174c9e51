//! Calibration: measures a device under loads of all kinds, each raised until reads are late, and
//! fits a cost model. `[ReFlex §3.2.1]`
//!
//! A [`Probe`] applies a load and returns its latencies: an emulated device in virtual time
//! ([`Emulated`]), or any device by the load generator ([`OnDevice`]). [`calibrate`] chooses the
//! loads and passes the measurements to [`qos::fit`]. [`Calibration`] is the outcome, as a table
//! and as JSON. [`run`] does all of it for a [`Subject`]. The command line owns the device and the
//! files, and decides whether writing is allowed.
//!
//! Invariants: no write to a device that holds data; no number in a model that was neither measured
//! nor given.

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
    /// Loads the device with requests of a kind that arrive independently (Poisson), at `iops` per
    /// second.
    ///
    /// # Errors
    /// When the device cannot be loaded.
    fn measure(&mut self, kind: Kind, iops: u64) -> Result<Measurement>;
}

/// Measures all planned loads on `probe`, and fits a model. `stop` ends it without a model.
///
/// # Errors
/// The device cannot be loaded; it was stopped; the measurements fit no model.
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

/// Checks `stop` before and after each load: a load that was cut short is no measurement.
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
