//! Loads on a namespace of a target: as one host, as many hosts, or by the lanes of a switchboard.

use crate::{App, ByPriority, Load, RoundRobin};
use anyhow::{Context as _, Result};
use base::units::CoreId;
use block::Device;
use host::limits::CONTROLLERS_MAX;
use host::{Host, HostIdentity, Namespace, Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use switch::{Class, Knobs};

/// Default NQN of the hosts; a number is appended.
const NAME: &str = "nqn.2026-11.io.switchyard:bench";

/// Hosts that one thread keeps connected; it connects them one after the other.
const HOSTS_OF_A_THREAD: u32 = 128;

const _: () = assert!(HOSTS_OF_A_THREAD as usize <= CONTROLLERS_MAX);

/// Fewest commands that each of many connections has room for: a small burst.
const DEPTH_MIN: u32 = 8;

/// A namespace of a target.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// Address of the target: HOST:PORT.
    pub address: &'a str,
    /// Name of the subsystem.
    pub nqn: &'a str,
    /// Identifier of the namespace.
    pub nsid: u32,
}

impl Remote<'_> {
    /// Connects as a number of hosts with the NQN `name`, to which a number is appended if there
    /// are several; `host` creates the host of a thread.
    ///
    /// # Errors
    /// A host that cannot connect.
    pub fn connect(
        &self,
        hosts: u32,
        name: Option<&str>,
        host: &(dyn Fn() -> Result<Host> + Sync),
    ) -> Result<Vec<Namespace>> {
        if hosts == 1 {
            let subsystem = host()?.connect(self.address, self.nqn)?;
            return Ok(vec![subsystem.namespace(self.nsid)?]);
        }
        let name = name.unwrap_or(NAME);
        let connect = &|first: u32| -> Result<Vec<Namespace>> {
            let thread = host()?;
            let connect = |number| {
                let mut options = thread.options(self.address, self.nqn)?;
                options.host = HostIdentity::from_nqn(&format!("{name}-{number}"))?;
                thread.connect_with(options)?.namespace(self.nsid)
            };
            (first..hosts.min(first + HOSTS_OF_A_THREAD))
                .map(|number| {
                    connect(number).with_context(|| format!("host {number} cannot connect"))
                })
                .collect()
        };
        let parts = std::thread::scope(|scope| {
            let parts: Vec<_> = (0..hosts.div_ceil(HOSTS_OF_A_THREAD))
                .map(|thread| scope.spawn(move || connect(thread * HOSTS_OF_A_THREAD)))
                .collect();
            let join =
                |part: ScopedJoinHandle<'_, _>| part.join().expect("connecting does not panic");
            parts.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        Ok(parts.concat())
    }
}

/// Returns loads of the same namespace, each with the number of connections and the queues of its
/// app.
#[must_use]
pub fn remote_loads(apps: &[App], namespace: &Namespace) -> Vec<Load> {
    let load = |app: &App| {
        let depth = u16::try_from(app.depth).expect("bounded by the load generator");
        load_of_class(app, |class| {
            let device = namespace.device().with_queues(app.queues, depth);
            Arc::new(device.with_class(class))
        })
    };
    apps.iter().map(load).collect()
}

/// Returns loads of the same namespace, each by the connections of all hosts in turn.
///
/// # Panics
/// Without a namespace.
#[must_use]
pub fn loads_of_hosts(apps: &[App], namespaces: &[Namespace]) -> Vec<Load> {
    let load = |app: &App| {
        let hosts = u32::try_from(namespaces.len()).expect("bounded by the command line");
        let connections = hosts * u32::from(app.queues);
        // Twice an even share, so that a connection that is behind can catch up.
        let depth = (2 * app.depth / connections).max(DEPTH_MIN).min(app.depth);
        let depth = u16::try_from(depth).expect("bounded by the load generator");
        load_of_class(app, |class| {
            let device = |namespace: &Namespace| {
                let device = namespace.device().with_queues(app.queues, depth);
                Arc::new(device.with_class(class)) as Arc<dyn Device>
            };
            Arc::new(RoundRobin::over(namespaces.iter().map(device).collect()))
        })
    };
    apps.iter().map(load).collect()
}

/// Starts a switchboard on the cores of the apps.
///
/// # Errors
/// Cores that cannot be used.
pub fn start_switchboard(apps: &[App], knobs: Knobs) -> Result<Switchboard> {
    let mut cores: Vec<_> = apps.iter().filter_map(|app| app.cpu.map(CoreId)).collect();
    if apps.iter().any(|app| app.cpu.is_none()) {
        cores = allowed_cores()?;
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(Switchboard::start(&SwitchboardOptions { cores, knobs })?)
}

/// Returns loads of the same namespace by the lanes of one switchboard.
///
/// # Errors
/// A switchboard that has ended.
pub fn switched_loads(
    apps: &[App],
    namespace: &Namespace,
    board: &Switchboard,
) -> Result<Vec<Load>> {
    let load = |app: &App| {
        let device = board
            .namespace(&namespace.device())?
            .with_requests(app.depth, app.block_bytes)
            .steered(app.cpu.is_none());
        Ok(load_of_class(app, |class| {
            Arc::new(device.clone().with_class(class))
        }))
    };
    apps.iter().map(load).collect()
}

/// Returns the app's load on the device of its class, or on the devices of all classes if its class
/// may change.
fn load_of_class(app: &App, device: impl Fn(Class) -> Arc<dyn Device>) -> Load {
    Load {
        app: app.clone(),
        device: if app.class_by_io_priority {
            Arc::new(ByPriority::new(device))
        } else {
            device(app.class_or_default())
        },
    }
}
