//! Reservations outside of a running namespace: on stable storage, on their way to another process,
//! and for people.

use super::state::Reservations;
use crate::namespace::Namespace;
use serde::{Deserialize, Serialize};
use std::fmt;
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
    pub(crate) state: Reservations,
}

impl ReservationRecord {
    pub(crate) fn of(nqn: &str, namespace: &Namespace) -> Self {
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
    pub(crate) fn is_of(&self, nqn: &str, namespace: &Namespace) -> bool {
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
    pub(crate) fn new(keep: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self {
            keep: Box::new(keep),
            failed: AtomicBool::new(false),
        }
    }

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
