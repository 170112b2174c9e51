//! Calibration of a device of a running target, from its request to its outcome.

use super::{Interface, Method, ask, escaped, read};
use crate::calibration::{CalibrationSnapshot, CalibrationState};
use anyhow::Result;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which the target is asked for its progress.
const LOOK: Duration = Duration::from_millis(200);

/// Begins the calibration of the device `name` and waits for its end, which `stop` brings about
/// early. Returns the last answer, as JSON and as its value.
///
/// `progress` is told the part that is over, in thousandths.
///
/// # Errors
/// A target that cannot be reached or refuses.
pub fn calibrate(
    api: &Interface,
    name: &str,
    request: &Value,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> Result<(Value, CalibrationSnapshot)> {
    let path = format!("/v1/devices/{}/calibration", escaped(name));
    let mut answer = ask(api, Method::POST, &path, Some(request))?;
    let mut cancelled = false;
    loop {
        let seen: CalibrationSnapshot = read(&answer)?;
        if seen.state != CalibrationState::Running {
            return Ok((answer, seen));
        }
        progress(seen.done_permille);
        if stop.load(Ordering::Relaxed) && !cancelled {
            ask(api, Method::DELETE, &path, None)?;
            cancelled = true;
        }
        std::thread::sleep(LOOK);
        answer = ask(api, Method::GET, &path, None)?;
    }
}
