//! Queue affinity: while classes contend, a target serves queues on their arrival cores.
//!
//! A queue's *arrival core* receives its packets: its caches hold the kernel's packet state, and no
//! thread on another core must be woken. On the loopback, that is the sender's core, so classes
//! that application steering separates on the host are separated on the target, too. Without
//! contention a queue gains more from an additional core: queues are then spread evenly. They [move
//! to their arrival cores](moves_to_arrival_core) while threads of the target serve both kinds of
//! classes; [application steering](crate::application_steering) may move them away again.
//! Invariant: never moves a queue to where steering would not leave it.

use crate::class::{Class, PerClass, Placement};

#[cfg(test)]
mod tests;

/// Factor by which the arrival core must be less loaded for a spreading queue to move there.
const MUCH_LESS: u64 = 8;

/// Returns the load of the classes with this placement.
fn load_of(placement: Placement, load: &PerClass<u64>) -> u64 {
    let counts = |class: Class| class.properties().placement == placement;
    load.iter()
        .filter(|&(class, _)| counts(class))
        .fold(0, |sum: u64, (_, &bytes)| sum.saturating_add(bytes))
}

/// Returns true if the loads of a target's threads, in bytes, include classes that must be
/// separated.
#[must_use]
pub fn contend(loads: &[PerClass<u64>]) -> bool {
    let any = |placement| loads.iter().any(|load| load_of(placement, load) > 0);
    any(Placement::Gather) && any(Placement::Spread)
}

/// Returns true if a queue of `class` should move to its arrival core, from a thread with the load
/// `here` to a thread with the load `arrival`, in bytes. `company` is the part of the gathering
/// load here that belongs to queues with other arrival cores.
///
/// A gathering queue moves unless it has company: it came here to be with other such queues, and
/// spreading queues can move away from any thread. A spreading queue moves if the arrival core has
/// almost no gathering load compared with here.
#[must_use]
pub fn moves_to_arrival_core(
    class: Class,
    company: u64,
    arrival: &PerClass<u64>,
    here: &PerClass<u64>,
) -> bool {
    let gathering = |load| load_of(Placement::Gather, load);
    match class.properties().placement {
        Placement::Gather => company == 0,
        Placement::Spread => gathering(arrival).saturating_mul(MUCH_LESS) < gathering(here),
    }
}
