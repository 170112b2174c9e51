//! A load from its apps to its report: the storage, the lanes, and knob changes during the load.

use crate::Stage;
use crate::cache_report::CacheWatch;
use crate::path_report::PathWatch;
use crate::vhost::VhostDisk;
use crate::{
    App, FollowerStart, KnobTurns, Load, LoadOptions, LoadProgress, LoadReport, Remote,
    SwitchReport, loads_of_hosts, remote_loads, run_led, start_switchboard, switched_loads,
};
use anyhow::Result;
use block::limits::{CACHE_PIECE_BYTES, CACHE_READS, CACHE_WRITES, SUBMITTER_DEPTH};
use block::{Cache, Device, PathDevice};
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
        /// NQN of the hosts.
        name: Option<&'a str>,
        /// Creates the host of a thread. Its threads must not poll: they would compete with the
        /// load.
        host: &'a (dyn Fn() -> Result<Host> + Sync),
    },
    /// A device of this machine.
    Local(Arc<dyn Device>),
    /// The disk of a vhost-user back end, which receives the class of each app's requests.
    Vhost(VhostDisk),
}

impl fmt::Debug for Storage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { remote, .. } => remote.fmt(f),
            Self::Local(device) => device.fmt(f),
            Self::Vhost(disk) => disk.fmt(f),
        }
    }
}

/// Connects, and loads the storage with all apps; with `led`, as a part of a load that runs in
/// several processes. `turns` are applied to the switchboard, if there is one.
///
/// # Errors
/// A target that cannot be reached, and as [`run_led`].
pub fn bench(
    apps: &[App],
    storage: &Storage<'_>,
    mut turns: KnobTurns,
    mut options: LoadOptions,
    led: Option<FollowerStart>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadReport> {
    options.moments = turns.moments();
    let mut board = None;
    // Controllers stay connected until the load has ended.
    let remote;
    let loads = match storage {
        Storage::Local(device) => on(apps, |_| Arc::clone(device)),
        Storage::Vhost(disk) => on(apps, |app| Arc::new(disk.clone().with_class(app.class))),
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
                [namespace] if options.cache.is_some() => cached_loads(apps, namespace),
                [namespace] => remote_loads(apps, namespace),
                namespaces => loads_of_hosts(apps, namespaces),
            }
        }
    };
    let (loads, mut watch) = by_layers(loads, &options)?;
    let mut turning = Ok(());
    let progress = &mut |now: LoadProgress| {
        if let Stage::Measuring | Stage::Ending = now.stage {
            watch.mark(now.stage == Stage::Ending);
        }
        if let (Some(board), Ok(())) = (&board, &turning) {
            turning = turns.look(board, options.warmup, now);
        }
        progress(now);
    };
    let mut report = run_led(&loads, &options, led, stop, progress)?;
    turning?;
    report.switch = board.iter().map(SwitchReport::of).collect();
    if let Some(switch) = report.switch.first_mut() {
        switch.turned = turns.turned();
    }
    watch.mark(true);
    watch.report(apps, &mut report);
    Ok(report)
}

/// Pairs each app with its device.
fn on(apps: &[App], device: impl Fn(&App) -> Arc<dyn Device>) -> Vec<Load> {
    let load = |app: &App| Load {
        app: app.clone(),
        device: device(app),
    };
    apps.iter().map(load).collect()
}

/// Watches the layers between the apps and their device.
#[derive(Debug, Default)]
struct Watch {
    path: Option<PathWatch>,
    cache: Option<CacheWatch>,
}

impl Watch {
    /// Marks the begin or the end of the measured time; only the first call of each counts.
    fn mark(&mut self, ends: bool) {
        if let Some(path) = &mut self.path {
            path.mark(ends);
        }
        if let Some(cache) = &mut self.cache {
            cache.mark(ends);
        }
    }

    /// Adds the layers' counters to the report, after the apps have ended.
    fn report(&self, apps: &[App], report: &mut LoadReport) {
        let Some(path) = &self.path else { return };
        report.path.extend(path.report());
        report
            .cache
            .extend(self.cache.as_ref().map(CacheWatch::report));
        // A request to a cache is not one to the device. The device reports the mean over all its
        // requests, which is an app's own mean only if all requests are of one kind.
        if self.cache.is_none()
            && of_one_kind(apps)
            && let Some(device_us) = path.device_us()
        {
            report.split_latency(device_us);
        }
    }
}

/// Returns true if all apps have the same request size and read share.
fn of_one_kind(apps: &[App]) -> bool {
    let kind = |app: &App| (app.block_bytes, app.read_percent, app.journal);
    apps.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1]))
}

/// Returns loads of a namespace whose queues have room for the cache's read-ahead and write-back.
fn cached_loads(apps: &[App], namespace: &Namespace) -> Vec<Load> {
    let deepened = |app: &App| App {
        depth: app.depth.max(SUBMITTER_DEPTH),
        ..app.clone()
    };
    let deep: Vec<_> = apps.iter().map(deepened).collect();
    let loads = remote_loads(&deep, namespace);
    let apps = apps.iter().cloned();
    loads
        .into_iter()
        .zip(apps)
        .map(|(load, app)| Load { app, ..load })
        .collect()
}

/// Puts the path and the cache of the options between the apps and their single device. Returns the
/// loads and the watch on these layers.
fn by_layers(loads: Vec<Load>, options: &LoadOptions) -> Result<(Vec<Load>, Watch)> {
    let mut watch = Watch::default();
    let Some(first) = loads.first() else {
        return Ok((loads, watch));
    };
    let device = Arc::clone(&first.device);
    let path = match options.path {
        Some((path, rules)) => Some(PathDevice::start(Arc::clone(&device), path, rules)?),
        None => None,
    };
    let cache = match (options.cache, &path) {
        (None, _) => None,
        (Some(options), None) => Some(Cache::new(Arc::clone(&device), options)?),
        (Some(options), Some(path)) => {
            // The cache also sends requests of its own.
            let most = |of: fn(&App) -> u32| loads.iter().map(|load| of(&load.app)).max();
            let depth = most(|app| app.depth).unwrap_or(0) + CACHE_READS + CACHE_WRITES;
            let bytes = most(|app| app.block_bytes).unwrap_or(0);
            let bytes = bytes.max(u32::try_from(CACHE_PIECE_BYTES)?);
            let path = path.clone().with_requests(depth, bytes);
            Some(Cache::over_path(path, options)?)
        }
    };
    let layered = |load: Load| {
        let (depth, bytes) = (load.app.depth, load.app.block_bytes);
        let device = match (&cache, &path) {
            (Some(cache), _) => Arc::new(cache.clone()) as Arc<dyn Device>,
            (None, Some(path)) => Arc::new(path.clone().with_requests(depth, bytes)),
            (None, None) => load.device,
        };
        Load {
            app: load.app,
            device,
        }
    };
    let loads = loads.into_iter().map(layered).collect();
    watch.path = Some(PathWatch::new(device, path));
    watch.cache = cache.map(CacheWatch::new);
    Ok((loads, watch))
}
