//! `switchyard bench`: loads on a target or a local device.

use super::connect::builder;
use super::knob_turns::KnobTurns;
use super::{bench_processes, signals};
use crate::args::{LoadArgs, LocalDevice};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use block::Device;
use control::model::Device as Model;
use control::plane::devices;
use host::Namespace;
use indicatif::ProgressBar;
use load::{
    App, Led, Load, LoadOptions, LoadProgress, LoadReport, Remote, Stage, SwitchReport,
    loads_of_hosts, remote_loads, start_switchboard, switched_loads,
};
use reactor::PollPolicy;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use switch::Knobs;

/// Runs the apps and prints what they achieved.
///
/// # Errors
/// An app that makes no sense, a device or target that cannot be used.
pub fn run(args: &LoadArgs, output: Output) -> Result<Outcome> {
    if let Some(index) = args.follower {
        return bench_processes::follow(args, index);
    }
    // What makes no sense is said before anything starts.
    KnobTurns::of(args, args.switch.knobs()?)?;
    if args.processes {
        return bench_processes::lead(args, output);
    }
    let stop = signals::stop_flag()?;
    let bar = output.time_bar(args.warmup + args.seconds);
    let result = measure(args, None, &stop, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    tell(&result?, output)
}

/// Runs the apps of the command line, or those of one of several processes.
pub(super) fn measure(
    args: &LoadArgs,
    led: Option<Led>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadReport> {
    let knobs = args.switch.knobs()?;
    let mut turns = KnobTurns::of(args, knobs)?;
    let options = options(args, knobs, turns.moments())?;
    // Keep the controllers connected until the load is over.
    let remote = match &args.target {
        Some(address) => connect(args, options.knobs, address)?,
        None => Vec::new(),
    };
    let mut board = None;
    let loads = match (&remote[..], &args.device) {
        ([namespace], _) if options.switched => {
            let board = board.insert(start_switchboard(&args.apps, options.knobs)?);
            switched_loads(&args.apps, namespace, board)?
        }
        ([namespace], _) => remote_loads(&args.apps, namespace),
        (_, Some(device)) => {
            let device = local(args, device)?;
            let load = |app: &App| Load {
                app: app.clone(),
                device: Arc::clone(&device),
            };
            args.apps.iter().map(load).collect()
        }
        (namespaces, None) => loads_of_hosts(&args.apps, namespaces),
    };
    let mut turning = Ok(());
    let progress = &mut |now| {
        if let (Some(board), Ok(())) = (&board, &turning) {
            turning = turns.look(board, options.warmup, now);
        }
        progress(now);
    };
    let mut report = match led {
        Some(led) => load::run_led(&loads, &options, led, stop, progress)?,
        None => load::run(&loads, &options, stop, progress)?,
    };
    for namespace in &remote {
        tell_of_tenants(namespace);
    }
    turning?;
    report.switch = board.iter().map(SwitchReport::of).collect();
    if let Some(switch) = report.switch.first_mut() {
        switch.turned = turns.turned();
    }
    Ok(report)
}

/// Returns the options of the load, if they go together.
fn options(args: &LoadArgs, knobs: Knobs, moments: Vec<Duration>) -> Result<LoadOptions> {
    ensure!(
        !args.seconds.is_zero(),
        "--seconds 0 measures nothing; choose at least 0.1"
    );
    let options = LoadOptions {
        warmup: args.warmup,
        measured: args.seconds,
        seed: args.seed,
        verify: args.verify,
        prefill: args.prefill,
        knobs,
        switched: args.is_switched(),
        hosts: args.hosts,
        moments,
    };
    ensure!(
        !options.switched || args.target.is_some(),
        "--lanes switched needs a --target; a local device has no lanes"
    );
    ensure!(
        !options.switched || args.hosts == 1,
        "--lanes switched are those of one host; omit --hosts"
    );
    Ok(options)
}

/// Connects as every one of the hosts. The threads that keep controllers alive must not compete
/// with the load by polling.
fn connect(args: &LoadArgs, knobs: Knobs, address: &str) -> Result<Vec<Namespace>> {
    let remote = Remote {
        address,
        nqn: &args.nqn,
        nsid: args.nsid,
    };
    remote.connect(args.hosts, args.host.host_nqn.as_deref(), &|| {
        let builder = builder(&args.host).poll(PollPolicy::Never).knobs(knobs);
        Ok(builder.build()?)
    })
}

/// Logs what the target told about the tenants that the load is, once each.
fn tell_of_tenants(namespace: &Namespace) {
    for event in namespace.subsystem().tenant_events() {
        if event.overruns {
            tracing::warn!("{event}");
        } else {
            tracing::info!("{event}");
        }
    }
}

/// Prints what the apps achieved.
pub(super) fn tell(report: &LoadReport, output: Output) -> Result<Outcome> {
    output.result(report, report)?;
    for note in report.notes() {
        output.note(note);
    }
    Ok(outcome(report))
}

pub(super) fn outcome(report: &LoadReport) -> Outcome {
    if report.errors() == 0 {
        Outcome::Done
    } else {
        Outcome::Negative
    }
}

fn local(args: &LoadArgs, device: &LocalDevice) -> Result<Arc<dyn Device>> {
    let writes = args.prefill || args.apps.iter().any(|app| app.read_percent < 100);
    let kind = device.kind(args.block_size, !writes);
    devices::open(&Model::new(kind)).context("--device")
}

/// A stage, as people say.
pub(super) const fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Preparing => "preparing",
        Stage::WarmingUp => "warming up",
        Stage::Measuring => "measuring",
        Stage::Ending => "ending",
    }
}

fn show(bar: &ProgressBar, progress: LoadProgress) {
    let stage = name(progress.stage);
    bar.set_message(format!("{stage}, {} requests", progress.requests));
    bar.set_position(u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX));
}
