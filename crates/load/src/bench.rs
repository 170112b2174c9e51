//! A load from its apps to its report: what they load, by which lanes, and the knobs that are
//! turned meanwhile.

use crate::Stage;
use crate::path_report::PathWatch;
use crate::{
    App, KnobTurns, Led, Load, LoadOptions, LoadProgress, LoadReport, Remote, SwitchReport,
    loads_of_hosts, remote_loads, run, run_led, start_switchboard, switched_loads,
};
use anyhow::Result;
use block::{Device, PathDevice};
use host::{Host, Namespace};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The storage that apps load.
pub enum Storage<'a> {
    /// A namespace of a target.
    Remote {
        /// The namespace.
        remote: Remote<'a>,
        /// The hosts' name.
        name: Option<&'a str>,
        /// Makes the host of a thread. Its threads must not compete with the load by polling.
        host: &'a (dyn Fn() -> Result<Host> + Sync),
    },
    /// A device of this machine.
    Local(Arc<dyn Device>),
}

impl fmt::Debug for Storage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { remote, .. } => remote.fmt(f),
            Self::Local(device) => device.fmt(f),
        }
    }
}

/// Connects, and loads the storage with all apps; with `led` as a part of a load that runs in
/// several processes. `turns` are made where there is a switchboard.
///
/// # Errors
/// A target that cannot be reached, and as [`run`].
pub fn bench(
    apps: &[App],
    storage: &Storage<'_>,
    mut turns: KnobTurns,
    mut options: LoadOptions,
    led: Option<Led>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadReport> {
    options.moments = turns.moments();
    let mut board = None;
    // Controllers stay connected until the load is over.
    let mut remote = Vec::new();
    let loads = match storage {
        Storage::Local(device) => {
            let load = |app: &App| Load {
                app: app.clone(),
                device: Arc::clone(device),
            };
            apps.iter().map(load).collect()
        }
        Storage::Remote {
            remote: namespace,
            name,
            host,
        } => {
            remote = namespace.connect(options.hosts, *name, *host)?;
            match &remote[..] {
                [namespace] if options.switched => {
                    let board = board.insert(start_switchboard(apps, options.knobs)?);
                    switched_loads(apps, namespace, board)?
                }
                [namespace] => remote_loads(apps, namespace),
                namespaces => loads_of_hosts(apps, namespaces),
            }
        }
    };
    let (loads, mut watch) = by_path(loads, &options)?;
    let mut turning = Ok(());
    let progress = &mut |now: LoadProgress| {
        if let (Some(watch), Stage::Measuring | Stage::Ending) = (&mut watch, now.stage) {
            watch.mark(now.stage == Stage::Ending);
        }
        if let (Some(board), Ok(())) = (&board, &turning) {
            turning = turns.look(board, options.warmup, now);
        }
        progress(now);
    };
    let mut report = match led {
        Some(led) => run_led(&loads, &options, led, stop, progress)?,
        None => run(&loads, &options, stop, progress)?,
    };
    remote.iter().for_each(log_tenants);
    turning?;
    report.switch = board.iter().map(SwitchReport::of).collect();
    if let Some(switch) = report.switch.first_mut() {
        switch.turned = turns.turned();
    }
    if let Some(watch) = &mut watch {
        watch.mark(true);
        report.path.extend(watch.report());
        if let Some(device_us) = watch.device_us() {
            report.split_latency(device_us);
        }
    }
    Ok(report)
}

/// Puts the path of the options between the apps and their device, of which there is one; returns
/// what watches that device.
fn by_path(loads: Vec<Load>, options: &LoadOptions) -> Result<(Vec<Load>, Option<PathWatch>)> {
    let Some(first) = loads.first() else {
        return Ok((loads, None));
    };
    let device = Arc::clone(&first.device);
    let Some((path, rules)) = options.path else {
        return Ok((loads, Some(PathWatch::new(device, None))));
    };
    let path = PathDevice::start(Arc::clone(&device), path, rules)?;
    let load = |load: Load| Load {
        device: Arc::new(
            path.clone()
                .with_requests(load.app.depth, load.app.block_bytes),
        ),
        app: load.app,
    };
    let loads = loads.into_iter().map(load).collect();
    Ok((loads, Some(PathWatch::new(device, Some(path)))))
}

/// Logs the target's events about the tenants that the load is, once each.
fn log_tenants(namespace: &Namespace) {
    for event in namespace.subsystem().tenant_events() {
        if event.overruns {
            tracing::warn!("{event}");
        } else {
            tracing::info!("{event}");
        }
    }
}
