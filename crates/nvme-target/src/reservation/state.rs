//! Registrations and the reservation of one namespace: the outcome of each command. `[NVMe Base 2.0
//! §8.19]`
//!
//! No clock, no I/O: [`Reservations::apply`] changes the state and returns the hosts to notify. A
//! host is identified by its HOSTID, over all its controllers.

use crate::limits::REGISTRANTS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::nvme::Status;
use wire::nvme::reservation::{
    AcquireAction, AcquireData, RegisterAction, RegisterData, ReleaseAction, ReleaseData,
    ReservationAcquire, ReservationNotice, ReservationRegister, ReservationRelease,
    ReservationType,
};

/// HOSTID.
pub(crate) type HostId = [u8; 16];

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// Access of a command to blocks, as a reservation distinguishes it. `[NVMe Base 2.0 §8.19.1]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// None: no reservation refuses the command.
    Free,
    Read,
    Write,
}

/// The hosts that a reservation does not exclude: all that a command is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    /// Reads are refused, too.
    reads: bool,
    /// Hosts with access, in order.
    admitted: Vec<HostId>,
}

impl Exclusion {
    /// Returns true if the reservation refuses a command of a host.
    pub(crate) fn refuses(&self, host: &HostId, access: Access) -> bool {
        let excluded = match access {
            Access::Free => false,
            Access::Read => self.reads,
            Access::Write => true,
        };
        excluded && self.admitted.binary_search(host).is_err()
    }
}

/// The reservation that a namespace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    #[serde(with = "type_byte")]
    kind: ReservationType,
    /// The holder; unused if every registrant is one.
    holder: HostId,
}

/// RTYPE as its byte.
mod type_byte {
    use super::{Deserialize, ReservationType};
    use serde::{Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(
        kind: &ReservationType,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_u8(*kind as u8)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<ReservationType, D::Error> {
        let byte = u8::deserialize(d)?;
        let unknown = || D::Error::custom(format!("{byte} is no type of a reservation"));
        ReservationType::parse(byte).ok_or_else(unknown)
    }
}

/// Hosts by HOSTID with their keys, as a list.
mod key_list {
    use super::{BTreeMap, Deserialize, HostId};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        keys: &BTreeMap<HostId, u64>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(keys)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<HostId, u64>, D::Error> {
        Vec::<(HostId, u64)>::deserialize(d).map(|keys| keys.into_iter().collect())
    }
}

/// A command that changes registrations or the reservation, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Register(ReservationRegister, RegisterData),
    Acquire(ReservationAcquire, AcquireData),
    Release(ReservationRelease, ReleaseData),
    /// Set Features: Reservation Persistence.
    Persist(bool),
}

/// The consequences of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Hosts to notify.
    pub(crate) notices: Vec<(HostId, ReservationNotice)>,
    /// The commands in flight end before the command completes.
    pub(crate) aborts: bool,
}

/// Registrations and the reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservations {
    /// GEN.
    generation: u32,
    /// The Persist Through Power Loss state.
    persists: bool,
    /// Keys of the registrants.
    #[serde(with = "key_list")]
    keys: BTreeMap<HostId, u64>,
    held: Option<Held>,
}

impl Reservations {
    /// GEN.
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true if the state persists through power loss.
    pub(crate) const fn persists(&self) -> bool {
        self.persists
    }

    /// Returns the type of the reservation.
    pub(crate) fn kind(&self) -> Option<ReservationType> {
        self.held.map(|held| held.kind)
    }

    /// Returns the registrants, their keys, and whether each holds the reservation.
    pub(crate) fn registrants(&self) -> impl Iterator<Item = (&HostId, u64, bool)> {
        let keys = self.keys.iter();
        keys.map(|(host, &key)| (host, key, self.holds(host)))
    }

    /// Returns true if the registered host holds the reservation.
    fn holds(&self, host: &HostId) -> bool {
        self.held
            .is_some_and(|held| held.kind.is_held_by_all() || held.holder == *host)
    }

    /// Returns what commands are checked against; `None` without a reservation.
    pub(crate) fn exclusion(&self) -> Option<Exclusion> {
        let Held { kind, holder } = self.held?;
        Some(Exclusion {
            reads: kind.excludes_reads(),
            admitted: if kind.admits_registrants() {
                self.keys.keys().copied().collect()
            } else {
                vec![holder]
            },
        })
    }

    /// Executes a command of a host.
    ///
    /// # Errors
    /// The command's status; nothing has changed.
    pub(crate) fn apply(&mut self, host: &HostId, request: &Request) -> Result<Outcome, Status> {
        let mut outcome = Outcome::default();
        match request {
            Request::Register(register, data) => {
                self.register(host, register, data, &mut outcome)?;
                self.persists = register.persist.unwrap_or(self.persists);
                self.generation = self.generation.wrapping_add(1);
            }
            Request::Acquire(acquire, data) => {
                self.check_key(host, data.current)?;
                match acquire.action {
                    AcquireAction::Acquire => self.acquire(host, acquire.kind)?,
                    action => {
                        self.preempt(host, acquire.kind, data.preempted, &mut outcome)?;
                        outcome.aborts = action == AcquireAction::PreemptAndAbort;
                        self.generation = self.generation.wrapping_add(1);
                    }
                }
            }
            Request::Release(release, data) => {
                self.check_key(host, data.current)?;
                match release.action {
                    ReleaseAction::Release => self.release(host, release.kind, &mut outcome)?,
                    ReleaseAction::Clear => {
                        let notice = ReservationNotice::ReservationPreempted;
                        self.notify_others(host, notice, &mut outcome);
                        self.keys.clear();
                        self.held = None;
                        self.generation = self.generation.wrapping_add(1);
                    }
                }
            }
            Request::Persist(persists) => self.persists = *persists,
        }
        Ok(outcome)
    }

    /// Checks that the host is a registrant, with this key.
    fn check_key(&self, host: &HostId, key: u64) -> Result<(), Status> {
        let own = self.keys.get(host);
        own.filter(|own| **own == key).map(drop).ok_or(CONFLICT)
    }

    /// Notifies all registrants except one.
    fn notify_others(&self, host: &HostId, notice: ReservationNotice, outcome: &mut Outcome) {
        let others = self.keys.keys().filter(|other| *other != host);
        outcome.notices.extend(others.map(|other| (*other, notice)));
    }

    /// Handles Reservation Register. `[NVMe Base 2.0 §8.19.3, §8.19.4]`
    fn register(
        &mut self,
        host: &HostId,
        register: &ReservationRegister,
        data: &RegisterData,
        outcome: &mut Outcome,
    ) -> Result<(), Status> {
        let own = self.keys.get(host).copied();
        let is_known = own.is_some_and(|own| register.ignore_key || own == data.current);
        match register.action {
            RegisterAction::Register | RegisterAction::Replace if data.new == 0 => Err(INVALID),
            RegisterAction::Register if own.is_some() => {
                // A host that has registered may only repeat it.
                own.filter(|own| *own == data.new).map(drop).ok_or(CONFLICT)
            }
            RegisterAction::Register if self.keys.len() >= REGISTRANTS_MAX => {
                Err(Status::INTERNAL_ERROR)
            }
            RegisterAction::Replace | RegisterAction::Unregister if !is_known => Err(CONFLICT),
            RegisterAction::Register | RegisterAction::Replace => {
                self.keys.insert(*host, data.new);
                Ok(())
            }
            RegisterAction::Unregister => {
                self.unregister(host, outcome);
                Ok(())
            }
        }
    }

    /// Ends a registration. The reservation ends with its holder, or with the last of its holders.
    fn unregister(&mut self, host: &HostId, outcome: &mut Outcome) {
        let held = self.held.filter(|_| self.holds(host));
        self.keys.remove(host);
        let Some(Held { kind, .. }) = held else {
            return;
        };
        if kind.is_held_by_all() && !self.keys.is_empty() {
            return;
        }
        self.held = None;
        if kind.admits_registrants() {
            self.notify_others(host, ReservationNotice::ReservationReleased, outcome);
        }
    }

    /// Handles Reservation Acquire without preemption. `[NVMe Base 2.0 §8.19.5]`
    fn acquire(&mut self, host: &HostId, kind: ReservationType) -> Result<(), Status> {
        match self.held {
            None => {
                self.hold(host, kind);
                Ok(())
            }
            Some(held) if held.kind == kind && self.holds(host) => Ok(()),
            Some(_) => Err(CONFLICT),
        }
    }

    fn hold(&mut self, host: &HostId, kind: ReservationType) {
        let holder = *host;
        self.held = Some(Held { kind, holder });
    }

    /// Handles preemption of the registrants with a key. `[NVMe Base 2.0 §8.19.7]`
    fn preempt(
        &mut self,
        host: &HostId,
        kind: ReservationType,
        key: u64,
        outcome: &mut Outcome,
    ) -> Result<(), Status> {
        let replaces = match self.held {
            Some(held) if held.kind.is_held_by_all() => key == 0,
            Some(_) if key == 0 => return Err(INVALID),
            Some(held) => self.keys.get(&held.holder) == Some(&key),
            None => false,
        };
        let everyone = replaces && key == 0;
        let keys = self.keys.iter();
        // Only a host that becomes the holder keeps its own registration.
        let named =
            keys.filter(|(other, own)| (everyone || **own == key) && !(replaces && *other == host));
        let named: Vec<_> = named.map(|(other, _)| *other).collect();
        if named.is_empty() && !replaces {
            return Err(CONFLICT);
        }
        let before = self.held;
        if replaces {
            self.hold(host, kind);
        }
        for other in &named {
            self.unregister(other, outcome);
        }
        let others = named.iter().filter(|other| *other != host);
        let preempted = ReservationNotice::RegistrationPreempted;
        outcome
            .notices
            .extend(others.map(|other| (*other, preempted)));
        if replaces && before.is_some_and(|held| held.kind != kind) {
            self.notify_others(host, ReservationNotice::ReservationReleased, outcome);
        }
        Ok(())
    }

    /// Handles Reservation Release without Clear. `[NVMe Base 2.0 §8.19.6]`
    fn release(&mut self, host: &HostId, kind: u8, outcome: &mut Outcome) -> Result<(), Status> {
        let Some(held) = self.held.filter(|_| self.holds(host)) else {
            return Ok(());
        };
        if held.kind as u8 != kind {
            return Err(INVALID);
        }
        self.held = None;
        if held.kind.admits_registrants() {
            self.notify_others(host, ReservationNotice::ReservationReleased, outcome);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
