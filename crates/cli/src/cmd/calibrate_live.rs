//! `switchyard calibrate --live`: a running target recalibrates a device while it serves tenants.

use super::signals;
use crate::args::CalibrateDeviceArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Result, bail, ensure};
use control::client;
use std::time::Duration;

/// Starts a live calibration, waits for its end, and prints the result.
///
/// # Errors
/// A target that is unreachable or refuses; contradictory measurements.
pub fn run(name: &str, args: &CalibrateDeviceArgs, output: Output) -> Result<Outcome> {
    ensure!(
        args.seconds.is_none_or(|length| length.subsec_nanos() == 0),
        "--seconds: --live needs a whole number of seconds; use 1 or more"
    );
    output.check_files(&args.output)?;
    let seconds = args.seconds.map(|length| length.as_secs());
    let request = serde_json::json!({ "share_percent": args.share, "seconds": seconds });
    let stop = signals::stop_flag()?;
    let bar = output.time_bar(Duration::from_secs(1));
    bar.set_message(name.to_owned());
    let outcome = client::calibrate(&args.api.interface(), name, &request, &stop, |permille| {
        bar.set_position(permille);
    });
    bar.finish_and_clear();
    let (answer, seen) = outcome?;
    let Some(result) = &seen.result else {
        bail!("{seen}");
    };
    output.result(&answer, &seen)?;
    for unkept in &result.unkept {
        output.note(format_args!(
            "device {name} can no longer meet the SLO of tenant {:?}, which stays in effect: {}",
            unkept.tenant, unkept.reason
        ));
    }
    if let Some(path) = &args.output {
        output.file(path, &result.model)?;
    }
    Ok(Outcome::Done)
}
