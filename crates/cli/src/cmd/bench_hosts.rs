//! `switchyard bench --hosts`: one load, as many hosts.

use super::bench::of_class;
use super::connect::builder;
use crate::args::LoadArgs;
use anyhow::{Context as _, Result};
use block::Device;
use host::limits::CONTROLLERS_MAX;
use host::{HostIdentity, Namespace};
use load::{App, Load, RoundRobin};
use reactor::PollPolicy;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use switch::Knobs;

/// What hosts are called where nobody says; a number follows.
const NAME: &str = "nqn.2026-11.io.switchyard:bench";

/// Hosts that one thread keeps connected, and connects one after the other.
const HOSTS_OF_A_THREAD: u32 = 128;

const _: () = assert!(HOSTS_OF_A_THREAD as usize <= CONTROLLERS_MAX);

/// Commands that each of many connections has room for, at least: a few that come together.
const DEPTH_MIN: u32 = 8;

/// Connects to the namespace to be loaded, as every one of the hosts.
///
/// # Errors
/// A host that cannot connect.
pub(super) fn connect(args: &LoadArgs, knobs: Knobs, address: &str) -> Result<Vec<Namespace>> {
    // The threads that keep controllers alive must not compete with the load by polling.
    let host = || {
        let builder = builder(&args.host).poll(PollPolicy::Never).knobs(knobs);
        builder.build()
    };
    if args.hosts == 1 {
        return Ok(vec![
            host()?.connect(address, &args.nqn)?.namespace(args.nsid)?,
        ]);
    }
    let name = args.host.host_nqn.as_deref().unwrap_or(NAME);
    let threads = args.hosts.div_ceil(HOSTS_OF_A_THREAD);
    let connect = &|first: u32| -> Result<Vec<Namespace>> {
        let thread = host()?;
        let numbers = first..args.hosts.min(first + HOSTS_OF_A_THREAD);
        let connect = |number| {
            let mut options = thread.options(address, &args.nqn)?;
            options.host = HostIdentity::from_nqn(&format!("{name}-{number}"))?;
            thread.connect_with(options)?.namespace(args.nsid)
        };
        numbers
            .map(|number| connect(number).with_context(|| format!("host {number} cannot connect")))
            .collect()
    };
    let parts = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || connect(thread * HOSTS_OF_A_THREAD)))
            .collect();
        let join = |part: ScopedJoinHandle<'_, _>| part.join().expect("connecting does not panic");
        parts.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.concat())
}

/// Each app loads the same namespace, by the connections of all hosts in turn.
pub(super) fn loads(apps: &[App], namespaces: &[Namespace]) -> Vec<Load> {
    let load = |app: &App| {
        let hosts = u32::try_from(namespaces.len()).expect("bounded by the command line");
        let connections = hosts * u32::from(app.queues);
        // Twice an even share: who is behind may catch up.
        let depth = (2 * app.depth / connections).max(DEPTH_MIN).min(app.depth);
        let depth = u16::try_from(depth).expect("bounded by the load generator");
        of_class(app, |class| {
            let device = |namespace: &Namespace| {
                let device = namespace.device().with_queues(app.queues, depth);
                Arc::new(device.with_class(class)) as Arc<dyn Device>
            };
            Arc::new(RoundRobin::over(namespaces.iter().map(device).collect()))
        })
    };
    apps.iter().map(load).collect()
}
