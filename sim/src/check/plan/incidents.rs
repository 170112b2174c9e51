//! The incidents of a run, in order.

use crate::check::feature::Feature;
use base::{Nanos, Prng};
use std::collections::BTreeSet;

/// An incident that occurs after a given number of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Answers of all applications together.
    pub after: u64,
    /// The incident.
    pub what: Incident,
}

base::named! {
    /// An action of the scripted host with writes in flight.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ByHand {
        /// CC.EN = 0, until CSTS.RDY is 0.
        Reset = "resets by hand",
        /// CC.SHN = 10b, until CSTS.SHST is 10b.
        Shutdown = "shutdowns by hand",
        /// Abort of a Dataset Management that the target splits into pieces, until the controller
        /// has aborted it.
        Abort = "aborts by hand",
        /// Commands for a namespace that one core of the target opens and other cores cannot open.
        Undo = "additions undone by hand",
    }
}

base::named! {
    /// A peer that uses a name which it does not prove.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Stranger {
        /// Connects without the proofs that are required.
        InClear = "strangers in clear",
        /// Has a key, and states the name of another host in Connect.
        OtherName = "strangers with another name",
        /// Has a key that the target knew before.
        OldKey = "strangers with an old key",
        /// Requests an I/O queue of a host, without its proofs.
        OtherQueue = "strangers at another host's queue",
    }
}

/// A change of the keys that a target knows of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// Time without any.
    pub unknown_for: Nanos,
    /// A bit for each key that the target knows then.
    pub known: u8,
}

/// The way of a take-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Nothing prevents it.
    Undisturbed,
    /// The successor refuses what it receives.
    Refused,
    /// The successor is killed before it has answered.
    Killed,
    /// A core of the running process stops before it: (core, time).
    Silent(usize, Nanos),
}

/// An incident of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The target crashes and restarts later.
    CrashTarget {
        /// Index of the target.
        target: usize,
        /// Time until the restart.
        down: Nanos,
        /// The disks lose unflushed data.
        power: bool,
        /// The first volume is replaced by another volume.
        other: bool,
    },
    /// Another process takes a target over, or fails to.
    TakeOver(usize, TakeOver),
    /// A host crashes, and another host replaces it for the rest of its work.
    CrashHost(usize),
    /// A core of a target stops for this long: (target, core).
    PauseTarget((usize, usize), Nanos),
    /// A host stops for this long.
    PauseHost(usize, Nanos),
    /// Cores of a host that send for its threads stop, while its controllers run.
    PauseHostCores {
        /// The host, among those with such cores.
        host: usize,
        /// The core, modulo their number; `None` for all.
        core: Option<usize>,
        /// Duration of the stop.
        pause: Nanos,
        /// Time before the next incident, in which answers arrive.
        lead: Nanos,
    },
    /// Waits until disks of a target have zeroed blocks for this many commands: (target, number).
    AwaitZeroes(usize, u64),
    /// A thread of a host that shares an I/O path stops: a submitter, or the path's dispatcher.
    PauseThread {
        /// The host, among those with such threads.
        host: usize,
        /// The thread, modulo their number.
        thread: usize,
        /// Duration of the stop.
        pause: Nanos,
    },
    /// A thread of a host that shares an I/O path, or the path's dispatcher, dies.
    KillThread {
        /// The host, among those with such threads.
        host: usize,
        /// The thread, modulo their number.
        thread: usize,
    },
    /// A knob of a target changes.
    TurnKnobs(usize),
    /// The clock of a target's machine jumps forward: (target, time).
    JumpTarget(usize, Nanos),
    /// The clock of a host's machine jumps forward: (host, time).
    JumpHost(usize, Nanos),
    /// A volume of a target is resized, in thousandths of the largest size: (target, volume).
    Resize((usize, usize), u64),
    /// The last volume of a target is removed as a namespace for a while.
    Remove {
        /// The target.
        target: usize,
        /// Duration of the removal.
        gone_for: Nanos,
        /// Another volume is added in its place.
        other: bool,
    },
    /// A scripted host acts at a target.
    ByHand(usize, ByHand),
    /// A target removes the subsystem of the hosts for this long.
    RemoveSubsystem(usize, Nanos),
    /// A target denies a host for this long: (target, host).
    Deny((usize, usize), Nanos),
    /// The tenants of a target change.
    ChangeTenants(usize),
    /// A target knows none of a host's keys for a while, then other ones than before: (target,
    /// host).
    ChangeKeys((usize, usize), KeyChange),
    /// A host authenticates again: (target, host).
    Authenticate((usize, usize)),
    /// A stranger comes to a target in the name of a host: (target, host).
    Stranger((usize, usize), Stranger),
}

/// A generator for one purpose only, so that a run without a feature is otherwise the same run.
pub(super) fn draws(seed: u64, purpose: u64) -> Prng {
    Prng::from_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose)
}

/// Draws a number from `min` to `max`, both included.
pub(super) fn size(prng: &mut Prng, min: u64, max: u64) -> usize {
    usize::try_from(min + prng.below(max - min + 1)).expect("a small number")
}

/// A host relies on time alone if a target cannot report that a command has ended. No write may
/// then take effect after the host's waiting time, so late requests are late by this fraction.
pub(super) const LATE_AT_FOREIGN: u64 = 64;

/// The parts of a run that incidents may affect.
#[derive(Clone, Copy)]
pub(super) struct There {
    pub(super) targets: usize,
    pub(super) cores: usize,
    pub(super) hosts: usize,
    pub(super) volumes: usize,
    /// Threads of a host share an I/O path.
    pub(super) paths: bool,
}

impl There {
    fn target(self, prng: &mut Prng) -> usize {
        size(prng, 0, self.targets as u64 - 1)
    }

    fn host(self, prng: &mut Prng) -> usize {
        size(prng, 0, self.hosts as u64 - 1)
    }
}

/// Returns all incidents in order.
pub(super) fn events(
    seed: u64,
    features: &BTreeSet<Feature>,
    there: There,
    calm_after: u64,
) -> Vec<Event> {
    let mut events = incidents(seed, features, there, calm_after);
    let has = |feature| features.contains(&feature);
    if has(Feature::Splits) || has(Feature::Syncs) && has(Feature::PowerLoss) {
        events.extend(losses(seed, has(Feature::Splits), there, calm_after));
    }
    if features.contains(&Feature::CorePauses) {
        let crashes = events.iter().filter(|event| {
            let what = event.what;
            matches!(what, Incident::CrashTarget { .. })
        });
        let crashes: Vec<_> = crashes.map(|event| event.after).collect();
        let pauses = core_pauses(seed, there, calm_after, &crashes);
        // The pauses before a crash precede it.
        events.splice(0..0, pauses);
    }
    if there.paths {
        events.extend(thread_pauses(seed, there, calm_after));
        if features.contains(&Feature::ThreadDeaths) {
            events.extend(thread_deaths(seed, there, calm_after));
        }
    }
    if has(Feature::ByHand) {
        events.extend(acts_by_hand(seed, there, calm_after));
    }
    // A stranger does not support digests.
    if (has(Feature::Tls) || has(Feature::Chap)) && !has(Feature::Flips) {
        events.extend(strangers(seed, there, calm_after));
    }
    if has(Feature::Chap) {
        events.extend(authentications(seed, there, calm_after));
    }
    if has(Feature::Keys) {
        events.splice(0..0, key_changes(seed, there, calm_after));
    }
    if has(Feature::TakeOvers) {
        let pauses = has(Feature::Pauses) && !has(Feature::Foreign);
        events.extend(take_overs(seed, there, calm_after, pauses));
    }
    events.sort_by_key(|event| event.after);
    events
}

/// Returns the divisor for delays that only one side sees: a host may rely on time alone.
fn one_sided_part(features: &BTreeSet<Feature>) -> u64 {
    if features.contains(&Feature::Foreign) {
        LATE_AT_FOREIGN
    } else {
        1
    }
}

/// Draws the incidents of each feature.
fn incidents(seed: u64, features: &BTreeSet<Feature>, there: There, calm_after: u64) -> Vec<Event> {
    let has = |feature| features.contains(&feature);
    let mut events = Vec::new();
    let mut add = |purpose, feature, most, make: &dyn Fn(&mut Prng) -> Incident| {
        let mut prng = draws(seed, purpose);
        for _ in 0..=prng.below(most) {
            let (after, what) = (prng.below(calm_after + 1), make(&mut prng));
            if has(feature) {
                events.push(Event { after, what });
            }
        }
    };
    let part = one_sided_part(features);
    let span = |prng: &mut Prng| Nanos::from_millis(1 << prng.below(16));
    add(6, Feature::TargetCrashes, 4, &|prng| {
        let (power, other) = (prng.chance(1, 2), prng.chance(1, 3));
        Incident::CrashTarget {
            down: Nanos::from_millis(prng.below(3_000)),
            power: power && has(Feature::PowerLoss),
            other: other && has(Feature::OtherVolume),
            target: there.target(prng),
        }
    });
    add(7, Feature::HostCrashes, 3, &|prng| {
        Incident::CrashHost(there.host(prng))
    });
    add(8, Feature::Pauses, 4, &|prng| {
        let pause = span(prng);
        if prng.chance(1, 2) {
            let core = size(prng, 0, there.cores as u64 - 1);
            let core = (there.target(prng), core);
            Incident::PauseTarget(core, Nanos(pause.0 / part))
        } else {
            Incident::PauseHost(there.host(prng), pause)
        }
    });
    add(9, Feature::Knobs, 20, &|prng| {
        Incident::TurnKnobs(there.target(prng))
    });
    add(14, Feature::Jumps, 4, &|prng| {
        let by = Nanos(span(prng).0 / part);
        if prng.chance(1, 2) {
            Incident::JumpTarget(there.target(prng), by)
        } else {
            Incident::JumpHost(there.host(prng), by)
        }
    });
    add(15, Feature::Resizes, 8, &|prng| {
        let volume = size(prng, 0, there.volumes as u64 - 1);
        Incident::Resize((there.target(prng), volume), prng.below(1_001))
    });
    add(16, Feature::Removals, 3, &|prng| Incident::Remove {
        gone_for: Nanos::from_millis(prng.below(1_000)),
        target: there.target(prng),
        other: has(Feature::OtherVolume) && draws(seed, 21).chance(1, 2),
    });
    add(17, Feature::Denials, 4, &|prng| {
        let denied_for = Nanos::from_millis(prng.below(5_000));
        Incident::Deny((there.target(prng), there.host(prng)), denied_for)
    });
    add(22, Feature::Subsystems, 3, &|prng| {
        let gone_for = Nanos::from_millis(prng.below(3_000));
        Incident::RemoveSubsystem(there.target(prng), gone_for)
    });
    add(18, Feature::Rights, 10, &|prng| {
        Incident::ChangeTenants(there.target(prng))
    });
    events
}

/// Draws pauses of threads that share an I/O path: shorter and longer than the hand-over times.
fn thread_pauses(seed: u64, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 24);
    let count = 1 + prng.below(8);
    let pause = |_| {
        let after = prng.below(calm_after + 1);
        let what = Incident::PauseThread {
            host: there.host(&mut prng),
            thread: size(&mut prng, 0, 31),
            pause: Nanos::from_micros(1 << prng.below(20)),
        };
        Event { after, what }
    };
    (0..count).map(pause).collect()
}

/// Draws actions of scripted hosts.
fn acts_by_hand(seed: u64, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 28);
    let count = 1 + prng.below(5);
    let act = |_| {
        let after = prng.below(calm_after + 1);
        let target = there.target(&mut prng);
        let what = Incident::ByHand(target, ByHand::ALL[size(&mut prng, 0, 3)]);
        Event { after, what }
    };
    (0..count).map(act).collect()
}

/// Draws take-overs of targets, some of them twice in a row. With `pauses`, cores may stop.
fn take_overs(seed: u64, there: There, calm_after: u64, pauses: bool) -> Vec<Event> {
    let mut prng = draws(seed, 33);
    let count = 1 + prng.below(5);
    let take_over = |_| {
        let (after, target) = (prng.below(calm_after + 1), there.target(&mut prng));
        let ways = (0..1 + prng.below(2)).map(|_| way(&mut prng, there, pauses));
        let whats = ways.map(|way| Incident::TakeOver(target, way));
        whats.map(|what| Event { after, what }).collect::<Vec<_>>()
    };
    (0..count).flat_map(take_over).collect()
}

/// Draws the way of a take-over.
fn way(prng: &mut Prng, there: There, pauses: bool) -> TakeOver {
    let core = size(prng, 0, there.cores as u64 - 1);
    let pause = Nanos::from_millis(1 << prng.below(16));
    match prng.below(8) {
        0 => TakeOver::Refused,
        1 => TakeOver::Killed,
        2 | 3 if pauses => TakeOver::Silent(core, pause),
        _ => TakeOver::Undisturbed,
    }
}

/// Draws visits of strangers.
fn strangers(seed: u64, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 31);
    let count = 1 + prng.below(4);
    let visit = |_| {
        let after = prng.below(calm_after + 1);
        let place = (there.target(&mut prng), there.host(&mut prng));
        let stranger = Stranger::ALL[size(&mut prng, 0, 3)];
        let what = Incident::Stranger(place, stranger);
        Event { after, what }
    };
    (0..count).map(visit).collect()
}

/// Draws further authentications of hosts.
fn authentications(seed: u64, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 32);
    let count = 1 + prng.below(8);
    let authentication = |_| {
        let after = prng.below(calm_after + 1);
        let place = (there.target(&mut prng), there.host(&mut prng));
        let what = Incident::Authenticate(place);
        Event { after, what }
    };
    (0..count).map(authentication).collect()
}

/// Draws changes of keys; in every second run, a target knows those of a host only after the host
/// has tried to connect.
fn key_changes(seed: u64, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 30);
    let at_first = prng.chance(1, 2);
    let count = 1 + prng.below(8);
    let change = |number| {
        let is_first = number == 0 && at_first;
        let drawn = prng.below(calm_after + 1);
        let place = (there.target(&mut prng), there.host(&mut prng));
        let longer = u64::from(is_first).max(prng.below(2));
        let change = KeyChange {
            unknown_for: Nanos::from_millis(longer << prng.below(13)),
            known: u8::try_from(1 + prng.below(3)).expect("two bits"),
        };
        Event {
            after: if is_first { 0 } else { drawn },
            what: Incident::ChangeKeys(place, change),
        }
    };
    (0..count).map(change).collect()
}

/// Draws deaths of threads that share an I/O path.
fn thread_deaths(seed: u64, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 26);
    let count = 1 + prng.below(4);
    let death = |_| {
        let after = prng.below(calm_after + 1);
        let what = Incident::KillThread {
            host: there.host(&mut prng),
            thread: size(&mut prng, 0, 31),
        };
        Event { after, what }
    };
    (0..count).map(death).collect()
}

/// Draws further power losses for applications that flush often: at an answer, like other crashes,
/// or during a split request.
fn losses(seed: u64, split: bool, there: There, calm_after: u64) -> Vec<Event> {
    let mut prng = draws(seed, 27);
    let count = 4 + prng.below(12);
    let loss = |_| {
        let after = prng.below(calm_after + 1);
        let target = there.target(&mut prng);
        let crash = Incident::CrashTarget {
            target,
            down: Nanos::from_millis(prng.below(100)),
            power: true,
            other: false,
        };
        let lead = split.then(|| Incident::AwaitZeroes(target, 1 + prng.below(4)));
        let both = lead.into_iter().chain([crash]);
        both.map(move |what| Event { after, what })
    };
    (0..count).flat_map(loss).collect()
}

/// Maximum stop of a host core: several times the time that its controller waits for it when the
/// association is lost.
const CORE_PAUSE_MAX: Nanos = Nanos::from_secs(16);

/// Draws stops of host cores: of single cores at any time, and of all cores of a host right before
/// each crash in `crashes`.
fn core_pauses(seed: u64, there: There, calm_after: u64, crashes: &[u64]) -> Vec<Event> {
    let mut prng = draws(seed, 20);
    let any = 1 + prng.below(3);
    let any: Vec<_> = (0..any).map(|_| prng.below(calm_after + 1)).collect();
    let any = any.into_iter().map(|after| (after, false));
    let all = crashes.iter().map(|&after| (after, true));
    let pause = |(after, all): (u64, bool)| {
        let core = size(&mut prng, 0, 3);
        let what = Incident::PauseHostCores {
            host: there.host(&mut prng),
            core: (!all).then_some(core),
            pause: Nanos(prng.below(CORE_PAUSE_MAX.0)),
            lead: Nanos::from_micros(prng.below(2_000)),
        };
        Event { after, what }
    };
    any.chain(all).map(pause).collect()
}
