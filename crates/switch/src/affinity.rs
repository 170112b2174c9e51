//! Queue affinity: while classes compete, a target serves each queue on the core that receives its
//! packets.
//!
//! The *arrival core* of a queue is the core that receives its packets: its caches have the
//! kernel's data, and no thread on another core must be woken. If host and target share cores,
//! loopback packets arrive on the sender's core, so classes that application steering separated on
//! the host are also separated on the target. On other cores, a request of one class would pass
//! through a core of the other class.
//!
//! Without competition, another core is better, because it adds CPU time. So queues are distributed
//! evenly, and [move to their arrival cores](moves_to_arrival_core) when threads of the target
//! serve both classes. [Application steering](crate::application_steering) may move them again.
//! Invariant: a queue never moves to a core that steering would not choose.

use crate::class::{Class, PerClass, Placement};

#[cfg(test)]
mod tests;

/// Factor by which the load on the arrival core must be smaller, for a queue that spreads to move
/// there.
const MUCH_LESS: u64 = 8;

/// The load of classes that are placed in this way.
fn load_of(placement: Placement, load: &PerClass<u64>) -> u64 {
    let counts = |class: Class| class.properties().placement == placement;
    load.iter()
        .filter(|&(class, _)| counts(class))
        .fold(0, |sum: u64, (_, &bytes)| sum.saturating_add(bytes))
}

/// Returns true if the loads of a target's threads, in bytes, hold classes that are to be kept
/// apart.
#[must_use]
pub fn contend(loads: &[PerClass<u64>]) -> bool {
    let any = |placement| loads.iter().any(|load| load_of(placement, load) > 0);
    any(Placement::Gather) && any(Placement::Spread)
}

/// Returns true if a queue of `class` that is served elsewhere moves to its arrival core, from a
/// thread with the load `here` to one with the load `arrival`, in bytes. Of what gathers here,
/// `company` bytes are of queues with other arrival cores.
///
/// What gathers goes, unless it is in company: that is what it came for, and what it avoids makes
/// room for it anywhere. What spreads goes where next to nothing gathers, compared with here.
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
