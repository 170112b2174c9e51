//! A controller's state on the core of its admin queue.

use crate::controller::async_events::{AsyncEvents, Notice};
use crate::controller::keep_alive::KeepAlive;
use crate::controller::registers::Registers;
use crate::controller::registry::{ControllerKind, SharedController};
use crate::namespace::Namespace;
use crate::qos::access::Rights;
use base::Time;
use base::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use wire::nvme::feature::VOLATILE_WRITE_CACHE_ENABLE;

/// Most waiting Aborts of a controller; hosts expect four. Each costs an entry of a turn, or a
/// message to another core and back.
pub(crate) const ABORTS_MAX: u8 = 4;

/// The admin queue's part of a controller.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) shared: Arc<SharedController>,
    /// The target's address that the host has reached, if known.
    pub(crate) reached: Option<IpAddr>,
    /// CC and CSTS.
    pub(crate) registers: Registers,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) features: Features,
    /// Values of Error Recovery that are not 0, by namespace.
    pub(crate) error_recovery: BTreeMap<u32, u32>,
    pub(crate) events: AsyncEvents,
    /// Number of waiting Aborts.
    pub(crate) aborts: u8,
    /// Rights of its host in the subsystem; `None`: all.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Identify reported no volatile write cache to the host.
    pub(crate) uncached: Cell<bool>,
}

impl Controller {
    /// Returns true for a discovery controller.
    pub(crate) fn is_discovery(&self) -> bool {
        self.shared.kind == ControllerKind::Discovery
    }

    /// Returns the time at which the controller ends without a further sign of life of its host.
    pub(crate) fn deadline(&mut self, now: Time) -> Time {
        let queues = self.shared.queues();
        let sign = if queues.places.is_empty() {
            queues.left
        } else {
            now
        };
        self.keep_alive.note_sign(sign);
        self.keep_alive.deadline()
    }

    /// Returns true unless every command of the host's tenant to the namespace would be refused.
    pub(crate) fn sees(&self, nsid: u32) -> bool {
        let rights = self.rights.as_ref();
        rights.is_none_or(|rights| rights.check_any(nsid).is_ok())
    }

    /// Returns the namespaces that the host may access, by identifier; a tenant does not see any
    /// other namespace.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = Arc<Namespace>> {
        let all = self.shared.subsystem.iter().flat_map(|s| s.namespaces());
        all.filter(|namespace| self.sees(namespace.nsid()))
    }

    /// Returns a namespace that the host may access.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<Arc<Namespace>> {
        let subsystem = self.shared.subsystem.as_ref().filter(|_| self.sees(nsid));
        subsystem.and_then(|subsystem| subsystem.namespace(nsid))
    }

    /// Sets new rights, and raises a notice for each namespace that appears or disappears.
    pub(crate) fn set_rights(&mut self, rights: Option<Arc<Rights>>) {
        let seen = |controller: &Self| -> Vec<_> {
            let namespaces = controller.namespaces();
            namespaces.map(|namespace| namespace.nsid()).collect()
        };
        let before = seen(self);
        self.rights = rights;
        let after = seen(self);
        for nsid in before.iter().chain(&after) {
            if before.contains(nsid) != after.contains(nsid) {
                self.events.raise(Notice::Namespace(*nsid));
            }
        }
    }

    /// Returns true if any namespace has a volatile write cache.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        let mut devices = self
            .namespaces()
            .map(|namespace| namespace.options.device.capabilities());
        devices.any(|capabilities| capabilities.volatile_cache)
    }

    /// Returns true if Identify reported no volatile write cache, but there is one now. A host
    /// reads this once per association and sends no Flush without a cache, so its controller has to
    /// end.
    pub(crate) fn is_outdated(&self) -> bool {
        self.uncached.get() && self.has_volatile_cache()
    }

    /// Ends the flush of a normal shutdown. If a cache failed to flush, CSTS shows it, and the host
    /// may request the shutdown again. `[NVMe Base 2.0 §3.6.2]`
    pub(crate) fn end_flush(&mut self, flushed: bool) {
        if let Some(ready) = self.registers.end_flush(flushed) {
            self.shared.queues().ready = ready;
        }
        self.settle();
    }

    /// Ends a reset or shutdown, unless commands of its I/O queues may still change data; in that
    /// case it is called again when none can.
    pub(crate) fn settle(&mut self) {
        if !self.shared.wait_for_queues() || mutation::active(Mutation::ResetEndsEarly) {
            self.registers.settle();
        }
    }
}

/// Values of features that are only stored: a host may set and read them, and they have no effect.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Features {
    pub(super) arbitration: u32,
    pub(super) power_management: u32,
    /// Thresholds of the composite temperature: over and under, in kelvin.
    pub(super) temperature: [u32; 2],
    pub(super) volatile_write_cache: u32,
    pub(super) write_atomicity: u32,
    /// Timestamp in milliseconds, and the time at which it was set.
    #[serde(skip)]
    pub(super) timestamp: Option<(u64, Time)>,
}

impl Features {
    /// Returns Timestamp in milliseconds, if a host has set it.
    pub(crate) fn timestamp_at(&self, now: Time) -> Option<u64> {
        let (millis, set) = self.timestamp?;
        Some(millis + now.since(set).as_millis())
    }
}

impl Default for Features {
    fn default() -> Self {
        Self {
            arbitration: 0,
            power_management: 0,
            temperature: [343, 0],
            volatile_write_cache: VOLATILE_WRITE_CACHE_ENABLE,
            write_atomicity: 0,
            timestamp: None,
        }
    }
}
