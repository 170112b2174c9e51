//! Reservations outside of a running namespace: on stable storage, on their way to another process,
//! and for people.

use super::state::Reservations;
use crate::change::ack::AckError;
use crate::change::step::ChangeStep;
use crate::namespace::Namespace;
use crate::subsystem::Subsystem;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Registrations and the reservation of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Namespace identifier.
    pub nsid: u32,
    /// UUID of the namespace: another volume does not inherit the record.
    uuid: [u8; 16],
    state: Reservations,
}

impl ReservationRecord {
    fn of(nqn: &str, namespace: &Namespace) -> Self {
        Self {
            nqn: nqn.to_owned(),
            nsid: namespace.nsid(),
            uuid: namespace.options.uuid,
            state: namespace.reservations().clone(),
        }
    }

    /// Returns true if a host has registered, even if no host is registered any more.
    pub(crate) fn is_used(&self) -> bool {
        self.state != Reservations::default()
    }

    /// Returns true if the record is of this namespace.
    fn is_of(&self, nqn: &str, namespace: &Namespace) -> bool {
        let it = (namespace.nsid(), namespace.options.uuid);
        self.nqn == nqn && (self.nsid, self.uuid) == it
    }
}

/// Writes the [persistent reservations](Target::persistent_reservations) to stable storage.
pub(crate) struct Keeper {
    keep: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// The last attempt failed, and was logged.
    failed: AtomicBool,
}

impl Keeper {
    /// Writes them. Returns whether it succeeded; logs the first of several failures, because hosts
    /// may try again and again.
    pub(crate) fn keep(&self) -> bool {
        let kept = (self.keep)();
        let failed_before = self.failed.swap(kept.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (&kept, failed_before) {
            tracing::error!("refused a change of reservations: {error}");
        }
        kept.is_ok()
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

/// A registrant of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registrant {
    /// HOSTID, as hexadecimal digits.
    pub host_id: String,
    /// It holds the reservation.
    pub holds: bool,
}

/// Reservations of a namespace at one moment. Keys are left out: they permit to preempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationSnapshot {
    /// RTYPE, 1 to 6; `None` without a reservation. `[NVMe Base 2.0 §8.19]`
    pub kind: Option<u8>,
    /// The state survives a restart.
    pub persists: bool,
    /// The registered hosts.
    pub registrants: Vec<Registrant>,
}

impl ReservationSnapshot {
    pub(crate) fn of(namespace: &Namespace) -> Self {
        let state = namespace.reservations();
        let registrants = state.registrants().map(|(host, _, holds)| Registrant {
            host_id: host.iter().map(|byte| format!("{byte:02x}")).collect(),
            holds,
        });
        Self {
            kind: state.kind().map(|kind| kind as u8),
            persists: state.persists(),
            registrants: registrants.collect(),
        }
    }
}

impl Target {
    /// Lets hosts request reservations that survive the end of the process: `keep` writes the
    /// [persistent ones](Self::persistent_reservations) to stable storage before a command that
    /// changes them is answered. Call it before hosts can connect.
    pub fn keep_reservations(&self, keep: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.shared.reservation_keeper.set(Keeper {
            keep: Box::new(keep),
            failed: AtomicBool::new(false),
        });
    }

    /// Sets the reservations of namespaces that are added later.
    pub fn set_reservations(&self, records: Vec<ReservationRecord>) {
        *self.shared.kept_reservations() = records;
    }

    /// Returns the reservations that survive the end of the process, including those of removed
    /// namespaces.
    #[must_use]
    pub fn persistent_reservations(&self) -> Vec<ReservationRecord> {
        let live = self.reservations();
        let mut all = self.shared.kept_reservations().clone();
        all.retain(|kept| {
            let is_it = |it: &&ReservationRecord| (&it.nqn, it.nsid) == (&kept.nqn, kept.nsid);
            !live.iter().any(|it| is_it(&it))
        });
        all.extend(live);
        all.retain(|record| record.state.persists());
        all
    }

    /// Returns the records of all namespaces.
    pub(crate) fn reservations(&self) -> Vec<ReservationRecord> {
        let subsystems = self.all_subsystems();
        let records = subsystems.iter().flat_map(|subsystem| {
            let namespaces = subsystem.namespaces().into_iter();
            namespaces.map(|namespace| ReservationRecord::of(&subsystem.nqn, &namespace))
        });
        records.collect()
    }

    /// Gives a new namespace the state that was kept for it.
    pub(crate) fn restore_reservations(&self, nqn: &str, namespace: &Namespace) {
        let kept = self.shared.kept_reservations();
        if let Some(record) = kept.iter().find(|record| record.is_of(nqn, namespace)) {
            *namespace.reservations() = record.state.clone();
        }
    }

    /// Keeps the persistent state of a namespace that was removed, for the time that it is added
    /// again. Other registrations end with the namespace.
    pub(crate) fn retain_reservations(&self, nqn: &str, namespace: &Namespace) {
        let mut kept = self.shared.kept_reservations();
        kept.retain(|record| record.nqn != nqn || record.nsid != namespace.nsid());
        let record = ReservationRecord::of(nqn, namespace);
        if record.state.persists() {
            kept.push(record);
        }
    }

    /// Gives all namespaces the state that another process had, before its connections are served.
    pub(crate) fn take_reservations(&self, records: &[ReservationRecord]) -> Result<(), AckError> {
        let mut steps = Vec::new();
        for subsystem in self.all_subsystems() {
            for namespace in subsystem.namespaces() {
                let mut records = records.iter();
                let record = records.find(|record| record.is_of(&subsystem.nqn, &namespace));
                let state = record.map(|record| record.state.clone());
                *namespace.reservations() = state.unwrap_or_default();
                steps.push(ChangeStep::Reserve(subsystem.index, namespace.nsid()));
            }
        }
        self.apply(&steps)
    }

    fn all_subsystems(&self) -> Vec<Arc<Subsystem>> {
        let configuration = self.shared.configuration();
        configuration.subsystems.values().cloned().collect()
    }
}
