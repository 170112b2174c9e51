//! Snapshots of a target, for people and for metrics.

use crate::controller::registry::SharedController;
use crate::reservation::kept::ReservationSnapshot;
use crate::snapshot::{
    ControllerSnapshot, NamespaceSnapshot, OperationSnapshot, QueueSnapshot, ScheduledDevice,
    Snapshot, SubsystemSnapshot,
};
use crate::subsystem::Subsystem;
use crate::target::Target;
use std::sync::atomic::Ordering;
use wire::nvme::nqn::DISCOVERY_NQN;

impl Target {
    /// Returns a snapshot. Counters are up to a few tens of milliseconds old.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let configuration = self.shared.configuration();
        let subsystems: Vec<_> = configuration.subsystems.values().cloned().collect();
        let generation = configuration.generation;
        let listeners = configuration.listeners.clone();
        let referrals = configuration.referrals.clone();
        drop(configuration);
        // Cores wait for these locks in Connect, Identify and Discovery, so counters are summed
        // without holding them.
        let subsystems = subsystems.iter().map(|s| subsystem_snapshot(s)).collect();
        let devices = self.devices();
        let controllers: Vec<_> = self.shared.controllers().iter().cloned().collect();
        let controllers = controllers.iter();
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
            queue_entries: self.shared.permits.entries() as u64,
            late_changes: self.shared.late_changes.load(Ordering::Relaxed),
            cores,
            switch,
            priorities: priorities.collect(),
            threads: self.shared.threads.snapshot(&knobs),
            knobs,
            limits: self.shared.limits.clone(),
        }
    }

    /// Returns a snapshot of the devices that schedule tokens and are used by a namespace.
    #[must_use]
    pub fn devices(&self) -> Vec<ScheduledDevice> {
        let devices = self.scheduled_devices().into_iter();
        let devices = devices.map(|(qos, namespaces)| ScheduledDevice {
            name: qos.name().to_owned(),
            tokens_per_second: qos.plan().rate.0,
            reserved_tokens_per_second: qos.plan().reserved.0,
            namespaces,
            tenants: qos.tenants(),
        });
        devices.collect()
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
            identity: controller.proven(),
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

fn subsystem_snapshot(subsystem: &Subsystem) -> SubsystemSnapshot {
    let changing = subsystem.lock();
    let namespaces: Vec<_> = changing.namespaces.values().cloned().collect();
    let allow_any_host = changing.allow_any_host;
    let allowed_hosts = changing.allowed_hosts.iter().cloned().collect();
    drop(changing);
    let namespaces = namespaces.iter().map(|namespace| {
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
            reservations: ReservationSnapshot::of(namespace),
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
        allow_any_host,
        allowed_hosts,
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
