//! `switchyard bench`: synthetic loads on a target or a local device.

use super::signals;
use crate::args::{LoadArgs, LoadedDevice};
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result, bail, ensure};
use config::schema::{BlockSize, Device, DeviceKind};
use control::plane::devices;
use indicatif::ProgressBar;
use load::vhost::VhostDisk;
use load::{
    App, FollowerStart, KnobTurns, LoadOptions, LoadProgress, LoadReport, Remote, Stage, Storage,
};
use reactor::PollPolicy;
use std::fmt::Display;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs the apps and prints the report.
///
/// # Errors
/// Invalid options, or a device or target that cannot be opened.
pub fn run(args: &LoadArgs, output: Output) -> Result<Outcome> {
    let args = &args.with_app()?;
    check(args)?;
    let stop = signals::stop_flag()?;
    if let Some(index) = args.follower {
        // Ctrl-C reaches every process of the terminal; the leader handles it.
        let report = load::follow(&args.apps, index, print, |apps, led, stop| {
            measure(args, apps, Some(led), stop, &mut |_| {})
        })?;
        return Ok(Outcome::of(report.errors() == 0));
    }
    let bar = output.time_bar(args.warmup + args.seconds);
    let result = if args.processes {
        let warn = |text: &str| output.note_all(text);
        let spans = [args.warmup, args.seconds];
        load::lead(&args.apps, spans, &stop, &warn, &mut |stage, elapsed| {
            show(&bar, args.time_left(stage, elapsed), elapsed);
        })
    } else {
        let mut rates = Rates::default();
        measure(args, &args.apps, None, &stop, &mut |now| {
            let left = args.time_left(now.stage, now.elapsed);
            show(&bar, format_args!("{left}{}", rates.at(now)), now.elapsed);
        })
    };
    bar.finish_and_clear();
    let report = result?;
    output.result(&report, &report)?;
    for note in report.notes() {
        output.note(note);
    }
    Ok(Outcome::of(report.errors() == 0))
}

/// Runs these apps: all of them, or those of one of several processes.
fn measure(
    args: &LoadArgs,
    apps: &[App],
    led: Option<FollowerStart>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadReport> {
    let (options, turns) = options(args)?;
    let host = || {
        // The threads that keep controllers alive must not compete with the load by polling.
        let builder = args.host.builder().poll(PollPolicy::Never);
        Ok(builder.knobs(options.knobs).build()?)
    };
    let storage = match (&args.target, &args.device) {
        (_, Some(LoadedDevice::Vhost(path))) => Storage::Vhost(VhostDisk::connect(path)?),
        (_, Some(LoadedDevice::Local(device))) => {
            let writes = args.prefill || apps.iter().any(|app| app.read_percent < 100);
            let kind = device
                .clone()
                .with(Some(args.block_size.unwrap_or(BlockSize::B4096)), !writes);
            Storage::Local(devices::open(&Device::new(kind)).context("--device")?)
        }
        (address, None) => Storage::Remote {
            remote: Remote {
                address: address.as_deref().expect("the command line demands one"),
                nqn: &args.nqn,
                nsid: args.nsid,
            },
            name: args.host.host_nqn.as_deref(),
            host: &host,
        },
    };
    load::bench(apps, &storage, turns, options.clone(), led, stop, progress)
}

/// Parameters of an app's own threads; all others apply to connections to a target.
const THREAD_KNOBS: [&str; 2] = ["latency_threads", "polling"];

/// Refuses options that contradict each other or have no effect.
fn check(args: &LoadArgs) -> Result<()> {
    options(args)?;
    let (is_local, is_switched) = (args.target.is_none(), args.is_switched());
    let shares = match args.lanes {
        Some(_) => "--lanes switched",
        None => "--baseline",
    };
    ensure!(
        !is_switched || !is_local,
        "{shares} shares connections to a target, and a local device has none; omit it"
    );
    ensure!(
        !is_switched || args.hosts == 1,
        "{shares} shares the connections of one host; omit it, or --hosts"
    );
    let is_of_lanes = |key: &str| is_local && !THREAD_KNOBS.contains(&key);
    if let Some(change) = args.switch.knobs.iter().find(|it| is_of_lanes(&it.key)) {
        bail!(
            "--knob {}: applies to connections to a target, and a local device has none; omit it",
            change.key
        );
    }
    if let Some(app) = args.apps.iter().find(|app| app.queues > 1) {
        ensure!(
            !is_local && !is_switched,
            "app \"{}\": queues={} needs a --target and --lanes own; omit it, or add --lanes own",
            app.name,
            app.queues
        );
    }
    let mut knobs = args.switch.knobs.iter();
    let says_poll = args.switch.poll.is_some() || knobs.any(|change| change.key == "polling");
    ensure!(
        args.path.is_none() || !says_poll,
        "--path determines when threads poll and sleep, so --poll has no effect; omit one of them"
    );
    let is_vhost = matches!(args.device, Some(LoadedDevice::Vhost(_)));
    ensure!(
        !is_vhost || args.block_size.is_none(),
        "--block-size: the vhost-user back end determines the block size; omit it"
    );
    if args.processes {
        let is_memory = matches!(
            args.device,
            Some(LoadedDevice::Local(
                DeviceKind::Ram { .. } | DeviceKind::Flash { .. }
            ))
        );
        ensure!(
            !is_memory && !is_vhost,
            "--processes: processes cannot share a RAM device or a vhost-user connection; use \
             --target, or --device file:PATH"
        );
        ensure!(
            args.cache.is_none(),
            "--cache: with --processes each process would have its own cache and miss the writes of \
             the other processes; omit one of them"
        );
        ensure!(
            args.path.is_none(),
            "--path: with --processes each process would have its own I/O path; omit one of them"
        );
    }
    Ok(())
}

/// Returns the options of the load, and the parameter changes during it.
fn options(args: &LoadArgs) -> Result<(LoadOptions, KnobTurns)> {
    let knobs = args.switch.knobs()?;
    let switched = args.is_switched();
    let turns = KnobTurns::of(&args.knob_turns, knobs, args.seconds, switched)?;
    let options = LoadOptions {
        warmup: args.warmup,
        measured: args.seconds,
        seed: args.seed,
        verify: args.verify,
        prefill: args.prefill,
        knobs,
        switched,
        path: args.path()?,
        cache: args.cache()?,
        hosts: args.hosts,
        ..LoadOptions::default()
    };
    Ok((options, turns))
}

impl LoadArgs {
    /// Returns the stage, and the time left while it has an end.
    fn time_left(&self, stage: Stage, elapsed: Duration) -> String {
        let end = self.warmup + self.seconds;
        match stage {
            Stage::Preparing | Stage::Ending => stage.to_string(),
            _ => format!(
                "{stage}, {} s left",
                end.saturating_sub(elapsed).as_secs_f64().ceil()
            ),
        }
    }
}

/// Rates between two progress reports that are at least [`INTERVAL`] apart.
#[derive(Default)]
struct Rates {
    earlier: Option<LoadProgress>,
    text: String,
}

/// Shortest interval of a rate that is shown.
const INTERVAL: Duration = Duration::from_secs(1);

impl Rates {
    /// Returns the rates at `now`, and the 99th percentile so far.
    fn at(&mut self, now: LoadProgress) -> &str {
        let earlier = self.earlier.get_or_insert(now);
        let interval = now.elapsed.saturating_sub(earlier.elapsed);
        if interval >= INTERVAL {
            let rate = |count: u64| count as f64 / interval.as_secs_f64();
            let iops = rate(now.requests - earlier.requests);
            let mebibytes = rate(now.bytes - earlier.bytes) / f64::from(1 << 20);
            self.text = format!(": {iops:.0} IOPS, {mebibytes:.1} MiB/s");
            if let Some(p99) = now.p99 {
                self.text += &format!(", p99 {:.1} us", p99.0 as f64 / 1e3);
            }
            self.earlier = Some(now);
        }
        &self.text
    }
}

fn show(bar: &ProgressBar, text: impl Display, elapsed: Duration) {
    bar.set_message(text.to_string());
    bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_has_rates_of_the_last_interval() {
        let at = |millis, requests| LoadProgress {
            stage: Stage::Measuring,
            elapsed: Duration::from_millis(millis),
            requests,
            bytes: requests * 4096,
            p99: Some(base::Nanos::from_micros(120)),
        };
        let mut rates = Rates::default();
        assert_eq!(rates.at(at(0, 0)), "");
        assert_eq!(rates.at(at(900, 9_000)), "");
        let expected = ": 25600 IOPS, 100.0 MiB/s, p99 120.0 us";
        assert_eq!(rates.at(at(2_000, 51_200)), expected);
        assert_eq!(rates.at(at(2_900, 60_000)), expected);
    }
}
