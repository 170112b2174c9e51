//! `switchyard bench`: loads on a target or a local device.

use super::connect::builder;
use super::signals;
use crate::args::{LoadArgs, LocalDevice};
use crate::devices;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use base::units::CoreId;
use bench::load::{App, ByPriority, Load, LoadOptions, LoadProgress, Stage};
use block::Device;
use control::model::{Device as Model, DeviceKind};
use host::{Namespace, Switchboard, SwitchboardOptions};
use indicatif::ProgressBar;
use reactor::PollPolicy;
use reactor::placement::allowed_cores;
use std::sync::Arc;
use switch::{Class, Knobs};

/// Runs the apps and prints what they achieved.
///
/// # Errors
/// An app that makes no sense, a device or target that cannot be used.
pub fn run(args: &LoadArgs, output: Output) -> Result<Outcome> {
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
        knobs: args.switch.knobs()?,
        switched: args.is_switched(),
    };
    ensure!(
        !options.switched || args.target.is_some(),
        "--lanes switched needs a --target; a local device has no lanes"
    );
    // Keeps the controller connected until the load is over.
    let remote = args
        .target
        .as_ref()
        .map(|address| connect(args, options.knobs, address))
        .transpose()?;
    let loads = match (&remote, &args.device) {
        (Some(namespace), _) if options.switched => {
            switched_loads(&args.apps, namespace, options.knobs)?
        }
        (Some(namespace), _) => remote_loads(&args.apps, namespace),
        (None, Some(device)) => {
            let device = local(args, device)?;
            let load = |app: &App| Load {
                app: app.clone(),
                device: Arc::clone(&device),
            };
            args.apps.iter().map(load).collect()
        }
        (None, None) => unreachable!("the command line demands one of them"),
    };
    let stop = signals::stop_flag()?;
    let bar = output.time_bar(args.warmup + args.seconds);
    let result = bench::load::run(&loads, &options, &stop, &mut |progress| {
        show(&bar, progress)
    });
    bar.finish_and_clear();
    let report = result?;
    output.result(&report, &report)?;
    for note in report.notes() {
        output.note(note);
    }
    Ok(if report.errors() == 0 {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

/// Connects to the namespace to be loaded.
fn connect(args: &LoadArgs, knobs: Knobs, address: &str) -> Result<Namespace> {
    // The thread that keeps the controller alive must not compete with the load by polling.
    let host = builder(&args.host)
        .poll(PollPolicy::Never)
        .knobs(knobs)
        .build()?;
    Ok(host.connect(address, &args.nqn)?.namespace(args.nsid)?)
}

/// Each app loads the same namespace, by as many connections and with such queues as it wants.
pub fn remote_loads(apps: &[App], namespace: &Namespace) -> Vec<Load> {
    let load = |app: &App| {
        let depth = u16::try_from(app.depth).expect("bounded by the load generator");
        let device = |class: Class| {
            let device = namespace.device().with_queues(app.queues, depth);
            Arc::new(device.with_class(class)) as Arc<dyn Device>
        };
        Load {
            app: app.clone(),
            device: if app.class_by_io_priority {
                Arc::new(ByPriority::new(device))
            } else {
                device(app.class_or_default())
            },
        }
    };
    apps.iter().map(load).collect()
}

/// All apps load the same namespace by the lanes of one switchboard, on the cores where they run.
fn switched_loads(apps: &[App], namespace: &Namespace, knobs: Knobs) -> Result<Vec<Load>> {
    let mut cores: Vec<_> = apps.iter().filter_map(|app| app.cpu.map(CoreId)).collect();
    if apps.iter().any(|app| app.cpu.is_none()) {
        cores = allowed_cores()?;
    }
    cores.sort_unstable();
    cores.dedup();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs })?;
    let load = |app: &App| {
        let device = board
            .namespace(&namespace.device())?
            .with_class(app.class.unwrap_or(Class::DEFAULT))
            .with_requests(app.depth, app.block_bytes)
            .steered(app.cpu.is_none());
        Ok(Load {
            app: app.clone(),
            device: Arc::new(device) as Arc<dyn Device>,
        })
    };
    apps.iter().map(load).collect()
}

fn local(args: &LoadArgs, device: &LocalDevice) -> Result<Arc<dyn Device>> {
    let block_size = args.block_size;
    let writes = args.prefill || args.apps.iter().any(|app| app.read_percent < 100);
    let kind = match device.clone() {
        LocalDevice::Ram(size) => DeviceKind::Ram { size, block_size },
        LocalDevice::Null(size) => DeviceKind::Null { size, block_size },
        LocalDevice::File(path) => DeviceKind::File {
            path,
            size: None,
            block_size,
            create: false,
            read_only: !writes,
        },
    };
    devices::open(&Model::new(kind)).context("--device")
}

fn show(bar: &ProgressBar, progress: LoadProgress) {
    let stage = match progress.stage {
        Stage::Preparing => "preparing",
        Stage::WarmingUp => "warming up",
        Stage::Measuring => "measuring",
        Stage::Ending => "ending",
    };
    bar.set_message(format!("{stage}, {} requests", progress.requests));
    bar.set_position(u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX));
}
