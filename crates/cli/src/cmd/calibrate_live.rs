//! `switchyard calibrate --live`: a running target measures a device again, within a share of its
//! load.

use super::signals;
use crate::args::CalibrateDeviceArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Result, bail, ensure};
use control::client;
use std::time::Duration;

/// Begins it, waits until it has ended, and tells what came out.
///
/// # Errors
/// A target that cannot be reached or refuses, and measurements that are no model.
pub fn run(name: &str, args: &CalibrateDeviceArgs, output: Output) -> Result<Outcome> {
    ensure!(
        args.seconds.is_none_or(|length| length.subsec_nanos() == 0),
        "--seconds: a target measures for whole seconds; choose 1 or more"
    );
    output.check_files(&args.output)?;
    let seconds = args.seconds.map(|length| length.as_secs());
    let request = serde_json::json!({ "share_percent": args.share, "seconds": seconds });
    let stop = signals::stop_flag()?;
    let bar = output.time_bar(Duration::from_secs(1));
    bar.set_message(name.to_owned());
    let outcome = client::calibrate(&args.api.api, name, &request, &stop, |permille| {
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
            "the promise to tenant {:?} does not fit {name} any more, and stays: {}",
            unkept.tenant, unkept.reason
        ));
    }
    if let Some(path) = &args.output {
        output.file(path, &result.model)?;
    }
    Ok(Outcome::Done)
}
