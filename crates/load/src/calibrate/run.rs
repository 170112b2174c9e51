//! A calibration from its subject to a model.

use super::{Calibration, Emulated, OnDevice, OnDeviceOptions, Plan, Progress, calibrate};
use anyhow::Result;
use block::Device;
use block::device::flash::Profile;
use config::DeviceModel;
use config::device_model::{PriceList, Provenance};
use config::provenance;
use qos::fit::Known;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Measured time of each load, and time of random writes before, unless the device is fresh.
const FULL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
const QUICK: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(2));

/// Block size in virtual time, where there are no blocks and requests have any size.
const SMALLEST_BLOCK: u32 = 512;

/// Requests of each load in virtual time.
const REQUESTS: u64 = 100_000;
const REQUESTS_QUICK: u64 = 20_000;

/// The subject of a calibration.
#[derive(Debug)]
pub enum Subject {
    /// Emulated flash of `bytes` bytes in virtual time; no device.
    Virtual {
        /// The flash.
        profile: Profile,
        /// Its size.
        bytes: u64,
    },
    /// A device.
    Device {
        /// The device.
        device: Arc<dyn Device>,
        /// The device's state follows from its contents alone, so nothing is written before the
        /// measurements.
        fresh: bool,
    },
}

/// Options of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Writing is allowed.
    pub writes: bool,
    /// Fewer and shorter loads.
    pub quick: bool,
    /// Measured time of each load; `None` for the default.
    pub measured: Option<Duration>,
    /// Time of random writes before the measurements; `None` for the default, zero for none.
    pub precondition: Option<Duration>,
    /// Requests of each load in virtual time; `None` for the default.
    pub requests: Option<u64>,
    /// Reading threads; the number of writing threads is the same.
    pub threads: u32,
    /// Connections of each thread to a remote device.
    pub queues: u16,
    /// Seed of the order of requests.
    pub seed: u64,
}

/// Measures all planned loads on the subject, and fits a model.
///
/// # Errors
/// As [`calibrate`].
pub fn run(
    subject: Subject,
    options: &Options,
    known: Known,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Calibration> {
    let quick = options.quick;
    let plan = |block_bytes| Plan::new(options.writes, block_bytes, quick);
    let (device, fresh) = match subject {
        Subject::Virtual { profile, bytes } => {
            let default = if quick { REQUESTS_QUICK } else { REQUESTS };
            let requests = options.requests.unwrap_or(default);
            let mut probe = Emulated::new(profile, bytes, requests, options.seed);
            return calibrate(&plan(SMALLEST_BLOCK), known, &mut probe, stop, progress);
        }
        Subject::Device { device, fresh } => (device, fresh),
    };
    let (measured, precondition) = if quick { QUICK } else { FULL };
    let precondition = match options.precondition {
        Some(Duration::ZERO) => None,
        Some(precondition) => Some(precondition),
        None if fresh => Some(Duration::ZERO),
        None => Some(precondition),
    };
    let plan = plan(device.geometry().block_bytes);
    let writes = plan.writes();
    let on_device = OnDeviceOptions {
        measured: options.measured.unwrap_or(measured),
        threads: options.threads,
        queues: options.queues,
        writes,
        precondition: precondition.filter(|_| writes),
        seed: options.seed,
    };
    let mut probe = OnDevice::prepare(device, on_device, stop)?;
    calibrate(&plan, known, &mut probe, stop, progress)
}

/// Returns the calibrated model of the device `name`, with this process's command line as its
/// comment.
#[must_use]
pub fn model(name: &str, calibration: &Calibration, known: Known) -> DeviceModel {
    let fit = &calibration.fit;
    let words = std::env::args().skip(1);
    let command: Vec<_> = std::iter::once("switchyard".to_owned())
        .chain(words)
        .collect();
    DeviceModel {
        provenance: Provenance {
            device: name.to_owned(),
            command: Some(command.join(" ")),
            write_price_measured: known.write.is_none(),
            spread_permille: fit.spread_permille,
            ..provenance::here_and_now()
        },
        prices: PriceList::new(fit.write, fit.read_only_read),
        curve: fit.curve.clone(),
    }
}
