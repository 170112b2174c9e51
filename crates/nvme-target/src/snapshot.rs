//! Everything that is known about a target at one moment, in the form in which interfaces show it.

use crate::latency::{Latency, TenantLatency};
use crate::limits::Limits;
use crate::registry::{ControllerKind, Referral, SharedController};
use crate::stats::{CoreStats, TenantStats};
use crate::subsystem::Subsystem;
use crate::switch_stats::SwitchStats;
use crate::target::Target;
use crate::tenant_record::Windows;
use crate::threads::ThreadsSnapshot;
use qos::Declaration;
use reactor::priority::Standing;
use serde::{Deserialize, Serialize, Serializer};
use std::net::SocketAddr;
use switch::Knobs;
use wire::nvme::nqn::DISCOVERY_NQN;

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
            tokens_per_second: qos.plan().rate.0,
            reserved_tokens_per_second: qos.plan().reserved.0,
            namespaces,
            tenants: qos.tenants(),
        });
        let devices = devices.collect();
        let registry = self.shared.controllers();
        let controllers = registry.iter();
        let controllers = controllers.map(|controller| self.controller(controller));
        let controllers = controllers.collect();
        let cores = self
            .shared
            .core_stats
            .iter()
            .map(|core| core.load())
            .collect();
        let switch = self.shared.switch_stats.iter();
        let switch = switch.map(|core| core.load()).collect();
        let standings = self.shared.standings.iter();
        let standings = standings.map(|core| core.get().copied().unwrap_or_default());
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
            standings: standings.collect(),
            threads: self.shared.threads.snapshot(&knobs),
            knobs,
            limits: self.shared.limits.clone(),
        }
    }

    fn controller(&self, controller: &SharedController) -> ControllerSnapshot {
        let subsystem = controller.subsystem.as_ref();
        let queues = controller.queues();
        let io_queues = queues.places.iter().map(|(&qid, place)| {
            let terms = queues.terms.get(&qid).copied().unwrap_or_default();
            QueueSnapshot {
                qid,
                core: self.shared.threads.core_of(place.core).map(|core| core.0),
                depth: terms.depth,
                header_digest: terms.header_digest,
                data_digest: terms.data_digest,
            }
        });
        ControllerSnapshot {
            id: controller.id,
            kind: controller.kind,
            nqn: subsystem
                .map_or(DISCOVERY_NQN, |subsystem| &subsystem.nqn)
                .to_owned(),
            host_nqn: controller.host_nqn.clone(),
            host_id: controller
                .host_id
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            peer: controller.peer,
            io_queues: io_queues.collect(),
            errors: controller.error_count(),
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
    pub standings: Vec<Standing>,
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
    /// Every host may connect.
    pub allow_any_host: bool,
    /// Hosts that may connect otherwise.
    pub allowed_hosts: Vec<String>,
    /// Its namespaces, by identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
}

/// A namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSnapshot {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Its UUID, as text.
    pub uuid: String,
    /// Read commands.
    pub reads: OperationSnapshot,
    /// Write commands.
    pub writes: OperationSnapshot,
    /// Flush commands of this namespace alone.
    pub flushes: OperationSnapshot,
    /// Write Zeroes, Dataset Management, Compare and Verify commands.
    pub others: OperationSnapshot,
}

impl NamespaceSnapshot {
    /// Returns the kinds of commands with their names.
    #[must_use]
    pub const fn operations(&self) -> [(&'static str, &OperationSnapshot); 4] {
        [
            ("read", &self.reads),
            ("write", &self.writes),
            ("flush", &self.flushes),
            ("other", &self.others),
        ]
    }
}

/// Commands of one kind, by their completion, on all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationSnapshot {
    /// Commands completed, with any status.
    pub completed: u64,
    /// Of these, commands completed with an error.
    pub errors: u64,
    /// Data moved by those that succeeded, in bytes.
    pub bytes: u64,
    /// Times from the dispatch of a command until its answer is queued, with any status. What is
    /// answered in the turn of the core's loop in which it came counts as 0.
    pub latency: Latency,
}

/// A device that is shared by tokens, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduledDevice {
    /// Its name.
    #[serde(rename = "device")]
    pub name: String,
    /// Tokens generated in a second, at the strictest latency that was promised.
    pub tokens_per_second: u64,
    /// Of these, tokens promised to latency-critical tenants.
    pub reserved_tokens_per_second: u64,
    /// The namespaces over it, each by its subsystem's name and its identifier.
    pub namespaces: Vec<(String, u32)>,
    /// Its tenants, by name.
    pub tenants: Vec<TenantSnapshot>,
}

/// A tenant on a device, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: String,
    /// Its class of service, with its parameters.
    pub class: ServiceClass,
    /// Tokens a second that its promise takes.
    pub reserved_tokens_per_second: u64,
    /// Counters of all cores together.
    #[serde(flatten)]
    pub stats: TenantStats,
    /// Service times of its commands, on all cores together.
    pub latency: TenantLatency,
    /// Seconds with reads, by the verdict on its promise.
    #[serde(flatten)]
    pub windows: Windows,
    /// It keeps asking for more than its promise says.
    pub overruns: bool,
}

/// The class of service of a tenant on a device. `[ReFlex §3.2]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceClass {
    /// The tenant has a share of the tokens that latency-critical tenants leave.
    BestEffort {
        /// The share, in proportion to the weights of the others.
        weight: u32,
    },
    /// The tenant is promised a latency of reads.
    LatencyCritical {
        /// The percentile of the reads for which the latency holds.
        percentile: String,
        /// The latency in nanoseconds.
        latency_ns: u64,
    },
}

impl Default for ServiceClass {
    fn default() -> Self {
        Declaration::default().into()
    }
}

impl From<Declaration> for ServiceClass {
    fn from(declaration: Declaration) -> Self {
        match declaration {
            Declaration::BestEffort(weight) => Self::BestEffort {
                weight: weight.get(),
            },
            Declaration::LatencyCritical(slo) => Self::LatencyCritical {
                percentile: slo.percentile.to_string(),
                latency_ns: slo.latency.0,
            },
        }
    }
}

/// A controller at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerSnapshot {
    /// CNTLID.
    #[serde(rename = "cntlid")]
    pub id: u16,
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// The name of its subsystem; that of the discovery subsystem for a discovery controller.
    pub nqn: String,
    /// HOSTNQN; empty for a host that gave none.
    #[serde(serialize_with = "or_none")]
    pub host_nqn: String,
    /// HOSTID, as hexadecimal digits.
    pub host_id: String,
    /// The address that its admin queue comes from.
    pub peer: SocketAddr,
    /// I/O queues that are connected, by their identifiers.
    pub io_queues: Vec<QueueSnapshot>,
    /// Errors since it was created.
    pub errors: u64,
}

/// Writes the name of a host; `(none)` for one that gave none.
fn or_none<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if name.is_empty() { "(none)" } else { name })
}

/// An I/O queue of a controller at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// Its queue identifier, from 1.
    pub qid: u16,
    /// The processor of the thread that serves it; `None` before that thread has one.
    pub core: Option<u32>,
    /// Its entries, as the host's Connect says.
    pub depth: u32,
    /// Its PDUs carry header digests.
    pub header_digest: bool,
    /// Its PDUs carry data digests.
    pub data_digest: bool,
}

fn subsystem_snapshot(subsystem: &Subsystem) -> SubsystemSnapshot {
    let changing = subsystem.lock();
    let namespaces = changing.namespaces.values().map(|namespace| {
        let device = &namespace.options.device;
        let geometry = device.geometry();
        let (stats, latency) = (namespace.total(), namespace.total_latency());
        let operation = |succeeded, errors, bytes, latency| OperationSnapshot {
            completed: succeeded + errors,
            errors,
            bytes,
            latency,
        };
        NamespaceSnapshot {
            nsid: namespace.nsid(),
            blocks: geometry.blocks,
            block_bytes: geometry.block_bytes,
            read_only: namespace.read_only(),
            uuid: uuid_text(&namespace.options.uuid),
            reads: operation(
                stats.reads,
                stats.read_errors,
                stats.read_bytes,
                latency.reads,
            ),
            writes: operation(
                stats.writes,
                stats.write_errors,
                stats.written_bytes,
                latency.writes,
            ),
            flushes: operation(stats.flushes, stats.flush_errors, 0, latency.flushes),
            others: operation(stats.others, stats.other_errors, 0, latency.others),
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

/// Returns the text of a UUID. `[RFC 9562 §4]`
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
