//! Snapshots of a target, for people and for metrics.

use crate::snapshot::{
    ControllerSnapshot, NamespaceSnapshot, ScheduledDevice, Snapshot, SubsystemSnapshot,
};
use crate::subsystem::Subsystem;
use crate::target::Target;

impl Target {
    /// Returns a snapshot. Counters are up to a few hundredths of a second old.
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
