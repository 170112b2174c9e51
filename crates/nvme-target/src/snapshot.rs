//! What a target is and did, at one moment: for people and for metrics.

use crate::latency::{NamespaceLatency, TenantLatency};
use crate::limits::Limits;
use crate::registry::{ControllerKind, Referral};
use crate::stats::{CoreStats, NamespaceStats, TenantStats};
use crate::subsystem::Subsystem;
use crate::switch_stats::SwitchStats;
use crate::target::Target;
use crate::tenant_record::Windows;
use crate::threads::ThreadsSnapshot;
use qos::{Declaration, Plan, TokenRate};
use reactor::priority::PriorityStatus;
use std::net::SocketAddr;
use switch::Knobs;

impl Target {
    /// What there is, and what it did. Counters are up to a few hundredths of a second old.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let configuration = self.shared.configuration();
        let subsystems = configuration
            .subsystems
            .values()
            .map(|s| subsystem_snapshot(s))
            .collect();
        let generation = configuration.generation;
        let listeners = configuration.listeners.clone();
        let referrals = configuration.referrals.clone();
        drop(configuration);
        let devices = self.scheduled_devices().into_iter();
        let devices = devices.map(|(qos, namespaces)| ScheduledDevice {
            name: qos.name().to_owned(),
            plan: qos.plan(),
            namespaces,
            tenants: qos.tenants(),
        });
        let devices = devices.collect();
        let registry = self.shared.controllers();
        let controllers = registry.iter().map(|controller| ControllerSnapshot {
            id: controller.id,
            kind: controller.kind,
            subsystem: controller
                .subsystem
                .as_ref()
                .map(|subsystem| subsystem.nqn.clone()),
            host_nqn: controller.host_nqn.clone(),
            host_id: controller.host_id,
            peer: controller.peer,
            io_queues: controller.queues().places.len(),
            errors: controller.error_count(),
        });
        let controllers = controllers.collect();
        let cores = self
            .shared
            .core_stats
            .iter()
            .map(|core| core.load())
            .collect();
        let switch = self.shared.switch_stats.iter();
        let switch = switch.map(|core| core.load()).collect();
        let priorities = self.shared.priorities.iter();
        let priorities = priorities.map(|core| core.get().copied().unwrap_or_default());
        let knobs = self.knobs();
        Snapshot {
            generation,
            listeners,
            referrals,
            subsystems,
            devices,
            controllers,
            cores,
            switch,
            priorities: priorities.collect(),
            threads: self.shared.threads.snapshot(&knobs),
            knobs,
            limits: self.shared.limits.clone(),
        }
    }
}

/// What a target is at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts the changes of what discovery hosts may see.
    pub generation: u64,
    /// Where it listens.
    pub listeners: Vec<SocketAddr>,
    /// Other discovery services that it refers to.
    pub referrals: Vec<Referral>,
    /// Its subsystems, by name.
    pub subsystems: Vec<SubsystemSnapshot>,
    /// The devices that are shared by tokens.
    pub devices: Vec<ScheduledDevice>,
    /// Its controllers, by identifier.
    pub controllers: Vec<ControllerSnapshot>,
    /// What each core did.
    pub cores: Vec<CoreStats>,
    /// What each core's switch did, in the same order.
    pub switch: Vec<SwitchStats>,
    /// By what each core's thread goes before others.
    pub priorities: Vec<PriorityStatus>,
    /// Which threads are in use.
    pub threads: ThreadsSnapshot,
    /// How everything that can be turned is turned.
    pub knobs: Knobs,
    /// What it was made with.
    pub limits: Limits,
}

/// A subsystem at one moment.
#[derive(Clone, Debug)]
pub struct SubsystemSnapshot {
    /// Its name.
    pub nqn: String,
    /// Its serial number.
    pub serial: String,
    /// Its model number.
    pub model: String,
    /// Whether every host may connect.
    pub allow_any_host: bool,
    /// Who may connect otherwise.
    pub allowed_hosts: Vec<String>,
    /// Its namespaces, by identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
}

/// A namespace at one moment.
#[derive(Clone, Debug)]
pub struct NamespaceSnapshot {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// What it did, on all cores together.
    pub stats: NamespaceStats,
    /// How long its commands took, on all cores together.
    pub latency: NamespaceLatency,
}

/// A device that is shared by tokens, at one moment.
#[derive(Clone, Debug)]
pub struct ScheduledDevice {
    /// What it is called.
    pub name: String,
    /// At which rate tokens are generated, and how much of that is promised.
    pub plan: Plan,
    /// The namespaces over it, each by its subsystem's name and its identifier.
    pub namespaces: Vec<(String, u32)>,
    /// Its tenants, by name.
    pub tenants: Vec<TenantSnapshot>,
}

/// A tenant on a device, at one moment.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// What it is called.
    pub name: String,
    /// What it is promised.
    pub declaration: Declaration,
    /// The rate of tokens that this takes.
    pub reserved: TokenRate,
    /// What it was served, on all cores together.
    pub stats: TenantStats,
    /// How long its commands took, on all cores together.
    pub latency: TenantLatency,
    /// In how many seconds its promise was kept.
    pub windows: Windows,
    /// Whether it keeps asking for more than its promise says.
    pub overruns: bool,
}

/// A controller at one moment.
#[derive(Clone, Debug)]
pub struct ControllerSnapshot {
    /// CNTLID.
    pub id: u16,
    /// Whether it is a discovery controller.
    pub kind: ControllerKind,
    /// The subsystem of an I/O controller.
    pub subsystem: Option<String>,
    /// Who connected.
    pub host_nqn: String,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// Where the admin queue comes from.
    pub peer: SocketAddr,
    /// I/O queues connected.
    pub io_queues: usize,
    /// Errors since it was made.
    pub errors: u64,
}

fn subsystem_snapshot(subsystem: &Subsystem) -> SubsystemSnapshot {
    let changing = subsystem.lock();
    let namespaces = changing.namespaces.values().map(|namespace| {
        let device = &namespace.options.device;
        let geometry = device.geometry();
        NamespaceSnapshot {
            nsid: namespace.nsid(),
            blocks: geometry.blocks,
            block_bytes: geometry.block_bytes,
            read_only: namespace.read_only(),
            uuid: namespace.options.uuid,
            stats: namespace.total(),
            latency: namespace.total_latency(),
        }
    });
    SubsystemSnapshot {
        nqn: subsystem.nqn.clone(),
        serial: subsystem.serial.clone(),
        model: subsystem.model.clone(),
        allow_any_host: changing.allow_any_host,
        allowed_hosts: changing.allowed_hosts.iter().cloned().collect(),
        namespaces: namespaces.collect(),
    }
}
