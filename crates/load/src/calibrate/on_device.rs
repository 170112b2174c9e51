//! Any device, loaded by the load generator.
//!
//! Reads and writes come from separate threads, each an open loop. A slow write therefore delays no
//! read, and latencies are measured for reads alone.

use super::Probe;
use crate::{Access, App, AppReport, Load, LoadOptions, LoadReport, Pace};
use anyhow::{Context as _, Result, ensure};
use base::Nanos;
use block::Device;
use qos::fit::{Kind, Measurement};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most requests that each thread keeps in flight: at 2 ms latency, 250,000 per second.
const DEPTH: u16 = 512;
/// Requests in flight while a device is filled and preconditioned.
const FILL_DEPTH: u32 = 32;
/// Bytes of each of these requests.
const FILL_BYTES: u32 = 65_536;
/// Fewest reads for a p99.9. A load with a lower rate is measured for longer.
const READS: u64 = 2_000;
/// Upper bound of that extension, as a multiple of the measured time.
const LONGER: u32 = 4;
/// The warm-up is the time of each load divided by this number.
const WARM_UP_DIVISOR: u32 = 4;

/// Options of the loads on a device.
#[derive(Clone, Debug)]
pub struct OnDeviceOptions {
    /// Measured time of each load.
    pub measured: Duration,
    /// Reading threads; the number of writing threads is the same.
    pub threads: u32,
    /// Connections of each thread to a remote device.
    pub queues: u16,
    /// Writing is allowed.
    pub writes: bool,
    /// Before the measurements, fills the device once and then writes at random for this time, so
    /// that its garbage collection works; `None` leaves the device as it is.
    pub precondition: Option<Duration>,
    /// Seed of the order of requests.
    pub seed: u64,
}

/// A device under load.
#[derive(Debug)]
pub struct OnDevice<'a> {
    device: Arc<dyn Device>,
    options: OnDeviceOptions,
    stop: &'a AtomicBool,
}

impl<'a> OnDevice<'a> {
    /// Most requests that each thread keeps in flight.
    pub const DEPTH: u16 = DEPTH;

    /// Brings a device into the state in which it is measured, if writing is allowed.
    ///
    /// # Errors
    /// When the device cannot be loaded.
    pub fn prepare(
        device: Arc<dyn Device>,
        options: OnDeviceOptions,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let mut probe = Self {
            device,
            options,
            stop,
        };
        if let Some(precondition) = probe.options.precondition {
            ensure!(
                probe.options.writes,
                "cannot fill a device without permission to write"
            );
            let mut app = probe.app("fill", 0, FILL_BYTES, FILL_DEPTH);
            app.count = 1;
            probe
                .run(
                    &[app],
                    Duration::ZERO,
                    precondition.max(Duration::from_millis(1)),
                    true,
                )
                .context("cannot fill the device")?;
        }
        Ok(probe)
    }

    fn app(&self, name: &str, read_percent: u8, block_bytes: u32, depth: u32) -> App {
        App {
            name: name.to_owned(),
            access: Access::Random,
            read_percent,
            block_bytes,
            depth,
            count: self.options.threads,
            cpu: None,
            queues: self.options.queues,
            rate: None,
            pace: Pace::Poisson,
            class: None,
            class_by_io_priority: false,
            journal: None,
        }
    }

    fn run(
        &mut self,
        apps: &[App],
        warmup: Duration,
        measured: Duration,
        prefill: bool,
    ) -> Result<LoadReport> {
        let options = LoadOptions {
            warmup,
            measured,
            seed: self.options.seed,
            prefill,
            ..LoadOptions::default()
        };
        let of = |app: &App| Load {
            app: app.clone(),
            device: Arc::clone(&self.device),
        };
        let loads: Vec<Load> = apps.iter().map(of).collect();
        let report = crate::run(&loads, &options, self.stop, &mut |_| {})?;
        for AppReport {
            errors,
            first_error,
            name,
            ..
        } in &report.apps
        {
            let error = first_error.as_deref().unwrap_or("unknown");
            ensure!(*errors == 0, "{errors} {name} failed; first error: {error}");
        }
        Ok(report)
    }
}

impl Probe for OnDevice<'_> {
    fn measure(&mut self, kind: Kind, iops: u64) -> Result<Measurement> {
        ensure!(
            self.options.writes || kind.read_permille == 1000,
            "no permission to write to the device for {kind}"
        );
        let permille = u64::from(kind.read_permille);
        let reads = (iops * permille / 1000).max(1);
        let writes = iops - reads.min(iops);
        let mut apps = vec![self.app("reads", 100, kind.request_bytes, DEPTH.into())];
        apps[0].rate = Some(reads);
        if permille < 1000 {
            let mut app = self.app("writes", 0, kind.request_bytes, DEPTH.into());
            app.rate = Some(writes.max(1));
            apps.push(app);
        }
        let least = self.options.measured;
        let enough = Duration::from_secs_f64(READS as f64 / reads as f64);
        let measured = enough.clamp(least, least * LONGER);
        let report = self.run(&apps, measured / WARM_UP_DIVISOR, measured, false)?;
        ensure!(
            !report.interrupted || self.stop.load(Ordering::Relaxed),
            "the load ended early"
        );
        Ok(measurement(kind, iops, &report))
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and times that were measured"
)]
fn measurement(kind: Kind, offered: u64, report: &LoadReport) -> Measurement {
    let nanos = |micros: f64| Nanos((micros * 1e3) as u64);
    let latency = report.apps[0].latency_us;
    let achieved: f64 = report.apps.iter().map(|app| app.iops).sum();
    Measurement {
        kind,
        offered,
        achieved: achieved.round() as u64,
        latency: [latency.p50, latency.p95, latency.p99, latency.p999].map(nanos),
    }
}
