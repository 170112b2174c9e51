//! Devices that are calibrated again while they serve: one at a time for each device.
//!
//! A calibration runs on a thread of its own, which observes the device ([`target::probe`]) and puts
//! what it saw into force. What is asked for and told comes through the control plane.

use crate::calibration::{
    CalibrationRequest, CalibrationResult, CalibrationSnapshot, CalibrationState, SeenLoad,
    UnkeptPromise,
};
use base::Nanos;
use block::Device;
use config::ApplyError;
use config::device_model::{DeviceModel, Live, PriceList, Provenance};
use config::provenance;
use qos::live::{LiveError, Observation, Refit};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use target::DeviceQos;
use target::probe::{ProbeError, ProbeOptions, ProbeWatch, observe};

/// The device of a calibration.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) device: Arc<dyn Device>,
    pub(super) qos: Arc<DeviceQos>,
    /// The model of its file, with the prices and the provenance that stay.
    pub(super) model: Arc<DeviceModel>,
}

/// The last calibration of each device.
#[derive(Debug, Default)]
pub(super) struct Recalibrations(Mutex<BTreeMap<String, Arc<Run>>>);

/// A calibration.
#[derive(Debug)]
struct Run {
    request: CalibrationRequest,
    watch: Arc<ProbeWatch>,
    outcome: Mutex<Option<Result<CalibrationResult, Failure>>>,
}

/// The reason for which a device has no newer model.
#[derive(Debug)]
struct Failure {
    state: CalibrationState,
    reason: String,
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        Self {
            state: match error {
                ProbeError::Stopped => CalibrationState::Cancelled,
                _ => CalibrationState::Failed,
            },
            reason: error.to_string(),
        }
    }
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        Self {
            state: CalibrationState::Failed,
            reason: format!("{error}; the model is unchanged"),
        }
    }
}

impl Recalibrations {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Run>>> {
        // Every change is one insertion or removal, so a poisoned lock is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one.
    ///
    /// # Errors
    /// When one of the device runs already, or there is no thread for it.
    pub(super) fn start(
        &self,
        subject: Subject,
        request: CalibrationRequest,
    ) -> Result<(), ApplyError> {
        let mut runs = self.runs();
        let name = subject.name.clone();
        if runs.get(&name).is_some_and(|run| run.is_running()) {
            return Err(ApplyError::conflict(
                format!("device {name:?} is being calibrated already"),
                "wait until that is done, or cancel it",
            ));
        }
        let run = Arc::new(Run {
            request,
            watch: Arc::default(),
            outcome: Mutex::default(),
        });
        let here = Arc::clone(&run);
        let work = move || {
            let outcome = here.carry_out(&subject);
            if let Err(Failure { reason, .. }) = &outcome {
                tracing::info!(device = subject.name, "not calibrated: {reason}");
            }
            *here.outcome() = Some(outcome);
        };
        let thread = std::thread::Builder::new().name("calibrate".to_owned());
        thread.spawn(work).map_err(|error| {
            let message = format!("cannot start a thread: {error}");
            ApplyError::failed(message, "try again")
        })?;
        runs.insert(name, run);
        Ok(())
    }

    /// Returns the progress of a device's calibration, or its outcome.
    ///
    /// # Errors
    /// When there was none.
    pub(super) fn show(&self, device: &str) -> Result<CalibrationSnapshot, ApplyError> {
        Ok(self.run(device)?.snapshot(device))
    }

    /// Returns true while a device is calibrated.
    pub(super) fn is_running(&self, device: &str) -> bool {
        self.run(device).is_ok_and(|run| run.is_running())
    }

    /// Lets a device's end soon.
    ///
    /// # Errors
    /// When there was none.
    pub(super) fn cancel(&self, device: &str) -> Result<(), ApplyError> {
        self.run(device)?.watch.stop();
        Ok(())
    }

    /// The device goes.
    pub(super) fn forget(&self, device: &str) {
        if let Some(run) = self.runs().remove(device) {
            run.watch.stop();
        }
    }

    fn run(&self, device: &str) -> Result<Arc<Run>, ApplyError> {
        self.runs().get(device).cloned().ok_or_else(|| {
            ApplyError::not_found(
                format!("no device {device:?} was calibrated while it served"),
                "begin with POST /v1/devices/NAME/calibration",
            )
        })
    }
}

impl Run {
    fn outcome(&self) -> MutexGuard<'_, Option<Result<CalibrationResult, Failure>>> {
        // It is set once and whole.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_running(&self) -> bool {
        self.outcome().is_none()
    }

    fn carry_out(&self, subject: &Subject) -> Result<CalibrationResult, Failure> {
        let Subject {
            name, device, qos, ..
        } = subject;
        let options = ProbeOptions {
            share_percent: self.request.share_percent,
            length: Nanos::from_secs(self.request.seconds.into()),
            seed: 1,
        };
        let seen = observe(&**device, qos, options, Arc::clone(&self.watch))?;
        let refit = qos.refit(&seen)?;
        let unkept = qos.unkept();
        for (tenant, refusal) in &unkept {
            tracing::warn!(
                tenant,
                device = name,
                "since its calibration, the device cannot keep a tenant's SLO; the SLO stays in \
                 force as far as the device allows: {refusal}"
            );
        }
        let plan = qos.plan();
        let model = self.model(subject, &refit);
        Ok(CalibrationResult {
            observations: seen.iter().map(load).collect(),
            used: refit.used as u64,
            spread_permille: refit.spread_permille,
            seen_tokens_per_second: [refit.seen.0.0, refit.seen.1.0],
            p95_before_ns: refit.highest.0.map(|latency| latency.0),
            p95_ns: refit.highest.1.0,
            tokens_per_second: plan.rate.0,
            reserved_tokens_per_second: plan.reserved.0,
            unkept: unkept
                .into_iter()
                .map(|(tenant, refusal)| UnkeptPromise {
                    tenant,
                    reason: refusal.to_string(),
                })
                .collect(),
            model: model.to_toml(),
        })
    }

    /// Returns the content of the device's file from now on.
    fn model(&self, subject: &Subject, refit: &Refit) -> DeviceModel {
        let CalibrationRequest {
            share_percent,
            seconds,
        } = self.request;
        let before = &subject.model;
        let command = format!(
            "switchyard calibrate --live {} --share {share_percent} --seconds {seconds}",
            subject.name
        );
        let provenance = Provenance {
            device: before.provenance.device.clone(),
            command: Some(command),
            write_price_measured: before.provenance.write_price_measured,
            spread_permille: Some(refit.spread_permille),
            live: Some(Live {
                share_percent,
                from: refit.seen.0,
                to: refit.seen.1,
            }),
            ..provenance::here_and_now()
        };
        DeviceModel {
            provenance,
            prices: PriceList::clone(&before.prices),
            curve: refit.curve.clone(),
        }
    }

    fn snapshot(&self, device: &str) -> CalibrationSnapshot {
        let outcome = self.outcome();
        let (state, error, result) = match &*outcome {
            None => (CalibrationState::Running, None, None),
            Some(Ok(result)) => (CalibrationState::Done, None, Some(result.clone())),
            Some(Err(Failure { state, reason })) => (*state, Some(reason.clone()), None),
        };
        CalibrationSnapshot {
            device: device.to_owned(),
            state,
            share_percent: self.request.share_percent,
            seconds: self.request.seconds,
            done_permille: self.watch.done_permille(),
            reads: self.watch.reads(),
            spent_milli: self.watch.spent_milli(),
            error,
            result,
        }
    }
}

fn load(seen: &Observation) -> SeenLoad {
    let [p50_ns, p95_ns, p99_ns, p999_ns] = seen.latency.map(|latency| latency.0);
    SeenLoad {
        tokens_per_second: seen.rate.0,
        read_permille: seen.read_permille,
        reads: seen.reads,
        p50_ns,
        p95_ns,
        p99_ns,
        p999_ns,
    }
}
