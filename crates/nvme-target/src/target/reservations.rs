//! Reservations outside of running namespaces: kept on stable storage, handed to another process.

use super::Target;
use crate::change::ack::AckError;
use crate::change::step::ChangeStep;
use crate::namespace::Namespace;
use crate::reservation::kept::{Keeper, ReservationRecord};
use crate::subsystem::Subsystem;
use std::sync::Arc;

impl Target {
    /// Lets hosts request reservations that survive the end of the process: `keep` writes the
    /// [persistent ones](Self::persistent_reservations) to stable storage before a command that
    /// changes them is answered. Call it before hosts can connect.
    pub fn keep_reservations(&self, keep: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.shared.reservation_keeper.set(Keeper::new(keep));
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
