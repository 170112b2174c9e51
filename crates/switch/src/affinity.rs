//! Queue affinity: while classes contend, a target's queues are served where their packets come in.
//!
//! The *arrival core* of a queue is the core that takes its packets in: what the kernel did for
//! them is in that core's caches, and no thread has to be woken on another one. Where host and
//! target share cores it is worth more, because the loopback takes packets in on the sender's core:
//! on its arrival core a queue is where application steering put its users on the host, so that
//! classes which are apart there are apart here, too. Elsewhere, a request of one class goes
//! through the other class's core and back.
//!
//! Without contention a queue is better off elsewhere: it has a core more. So queues are dealt out
//! evenly, and [move to their arrival cores](moves_to_arrival_core) when threads of the target
//! serve both kinds of classes. [Application steering](crate::application_steering) may lead them
//! away again. Pure. Must never: bring a queue to where steering would not leave it.

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
