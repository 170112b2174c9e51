//! `switchyard calibrate --live`: a running target measures a device again, within a share of its
//! load.

use super::signals;
use crate::args::CalibrateDeviceArgs;
use crate::exit::Outcome;
use crate::http::{ask, escaped};
use crate::output::Output;
use anyhow::{Context as _, Result, bail};
use control::calibration::{CalibrationResult, CalibrationSnapshot, CalibrationState, SeenLoad};
use hyper::Method;
use serde::Deserialize;
use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which the target is asked for its progress.
const LOOK: Duration = Duration::from_millis(200);

/// Begins it, waits until it has ended, and tells what came out.
///
/// # Errors
/// A target that cannot be reached or refuses, and measurements that are no model.
pub fn run(name: &str, args: &CalibrateDeviceArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.api;
    let path = format!("/v1/devices/{}/calibration", escaped(name));
    let seconds = args.seconds.map(|length| length.as_secs().max(1));
    let body = serde_json::json!({ "share_percent": args.share, "seconds": seconds });
    let stop = signals::stop_flag()?;
    let mut answer = ask(api, Method::POST, &path, Some(&body))?;
    let bar = output.time_bar(Duration::from_secs(1));
    bar.set_message(name.to_owned());
    let mut cancelled = false;
    let (seen, answer) = loop {
        let seen = CalibrationSnapshot::deserialize(&answer)
            .context("the target's answer is not understood")?;
        if seen.state != CalibrationState::Running {
            break (seen, answer);
        }
        bar.set_position(seen.done_permille);
        if stop.load(Ordering::Relaxed) && !cancelled {
            ask(api, Method::DELETE, &path, None)?;
            cancelled = true;
        }
        std::thread::sleep(LOOK);
        answer = ask(api, Method::GET, &path, None)?;
    };
    bar.finish_and_clear();
    let Some(result) = &seen.result else {
        bail!("{}", seen.error.as_deref().unwrap_or("no model came out"));
    };
    output.result(&answer, Told(&seen, result))?;
    for unkept in &result.unkept {
        output.note(format_args!(
            "the promise to tenant {:?} does not fit {name} any more, and stays: {}",
            unkept.tenant, unkept.reason
        ));
    }
    if let Some(path) = &args.output {
        write(path, &result.model, output)?;
    }
    Ok(Outcome::Done)
}

/// The result, as a table.
struct Told<'a>(&'a CalibrationSnapshot, &'a CalibrationResult);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seen, result) = self;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        writeln!(
            f,
            "tokens/s reads %     probes    p50 us    p95 us    p99 us  p99.9 us"
        )?;
        for SeenLoad {
            tokens_per_second,
            read_permille,
            reads,
            p50_ns,
            p95_ns,
            p99_ns,
            p999_ns,
        } in &result.observations
        {
            let [p50, p95, p99, p999] = [p50_ns, p95_ns, p99_ns, p999_ns].map(|&ns| micros(ns));
            writeln!(
                f,
                "{tokens_per_second:>8} {:>7.1} {reads:>10} {p50:>9.1} {p95:>9.1} {p99:>9.1} {p999:>9.1}",
                f64::from(*read_permille) / 10.0
            )?;
        }
        let [from, to] = result.seen_tokens_per_second;
        let spread = f64::from(result.spread_permille) / 10.0;
        writeln!(
            f,
            "{}: the curve is new from {from} to {to} tokens/s, and as it was below and above, like \
             the prices; {} of {} loads had reads enough, and their p95 agree within {spread:.1} %",
            seen.device,
            result.used,
            result.observations.len()
        )?;
        if let Some(before) = result.p95_before_ns {
            let [before, now] = [before, result.p95_ns].map(micros);
            writeln!(
                f,
                "p95 at {to} tokens/s: {now:.1} us, and {before:.1} us by the model before"
            )?;
        }
        write!(
            f,
            "in force: {} tokens/s, {} of them promised; {} tokens were spent on it",
            result.tokens_per_second,
            result.reserved_tokens_per_second,
            seen.spent_milli / 1000
        )
    }
}

/// Writes a result to a file.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, text: &str, output: Output) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    output.note(format_args!("written: {}", path.display()));
    Ok(())
}
