//! What happens in a run, drawn from its seed.

use super::feature::{Feature, complete};
use crate::client::{Tolerance, Workload};
use crate::disk::DiskFaults;
use crate::host_core::Provoked;
use crate::network::NetworkFaults;
use crate::world::Pace;
use base::{Nanos, Prng};
use std::collections::BTreeSet;
use target::Limits;

/// Which run it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Everything is drawn from it.
    pub seed: u64,
    /// What is left out, although the seed would have it.
    pub without: BTreeSet<Feature>,
    /// Requests of each application, rather than as many as the seed says.
    pub requests: Option<u64>,
}

/// Something that happens once so many requests were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Requests of all applications together.
    pub after: u64,
    /// What it is.
    pub what: Incident,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The target crashes, and comes back after a while.
    CrashTarget {
        /// For how long it is gone.
        down: Nanos,
        /// The disks lose what they had not flushed.
        power: bool,
        /// The first volume is another one afterwards.
        other: bool,
    },
    /// A host crashes, and another comes for the rest of its work.
    CrashHost(usize),
    /// A core of the target stops for so long.
    PauseTarget(usize, Nanos),
    /// A host stops for so long.
    PauseHost(usize, Nanos),
    /// Somebody turns a knob of the target.
    TurnKnobs,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it has in it.
    pub features: BTreeSet<Feature>,
    /// Cores of the target.
    pub target_cores: usize,
    /// Volumes, each a namespace of the same subsystem.
    pub volumes: usize,
    /// Blocks of a volume.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Hosts, each on a core, all on the same subsystem.
    pub hosts: usize,
    /// Applications of each host, each with a channel of its own.
    pub applications: usize,
    /// I/O queues of each channel.
    pub queues: u16,
    /// What each application does.
    pub workload: Workload,
    /// How long each application asks for nothing, once.
    pub rest: Nanos,
    /// What may happen to connections.
    pub provoked: Provoked,
    /// Errors that applications must be ready for.
    pub tolerance: Tolerance,
    /// What hosts wait for a command.
    pub command_timeout: Nanos,
    /// The hosts' keep-alive time-out.
    pub keep_alive: Nanos,
    /// The target's limits.
    pub limits: Limits,
    /// What the network does until all is calm.
    pub network: NetworkFaults,
    /// How fast cores are until all is calm.
    pub pace: Pace,
    /// What the disks do until all is calm.
    pub disk: DiskFaults,
    /// A send of the liar in so many is changed.
    pub lie_one_in: u64,
    /// In the order in which they happen.
    pub events: Vec<Event>,
    /// From so many answers on nothing goes wrong any more.
    pub calm_after: u64,
}

/// Draws for one purpose only, so that a run without a feature is otherwise the same run.
fn draws(seed: u64, purpose: u64) -> Prng {
    Prng::from_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose)
}

fn size(prng: &mut Prng, min: u64, max: u64) -> usize {
    usize::try_from(min + prng.below(max - min + 1)).expect("a small number")
}

fn features(options: &Options) -> BTreeSet<Feature> {
    let mut features = BTreeSet::new();
    // Some runs have little in them, and some nearly everything.
    let share = 1 + draws(options.seed, 1).below(8);
    for (purpose, (feature, _)) in (100..).zip(Feature::ALL) {
        let drawn = draws(options.seed, purpose).chance(share, 10);
        if drawn && !options.without.contains(&feature) {
            features.insert(feature);
        }
    }
    complete(features)
}

impl Plan {
    /// The run that these options say.
    #[must_use]
    pub fn draw(options: &Options) -> Self {
        let features = features(options);
        let has = |feature| features.contains(&feature);
        let mut prng = draws(options.seed, 2);
        let target_cores = size(&mut prng, 1, 3);
        let hosts = size(&mut prng, 1, 3);
        let applications = size(&mut prng, 1, 2);
        let queues = u16::try_from(size(&mut prng, 1, 3)).expect("a few");
        let volumes = size(&mut prng, 1, 2);
        let block_bytes = if prng.chance(3, 4) { 512 } else { 4096 };
        let blocks = [16, 64, 512][size(&mut prng, 0, 2)];
        let drawn = 100 + prng.below(900);
        let requests = options.requests.unwrap_or(drawn);
        let workload = Workload {
            requests,
            depth: size(&mut prng, 1, 24),
            blocks_max: 1 + prng.below(8),
            blocks_large: 1 + prng.below(blocks.min(128)),
        };
        let total = requests * (hosts * applications) as u64;
        let calm_after = total * 3 / 4;
        let events = events(options.seed, &features, (target_cores, hosts), calm_after);
        let late = has(Feature::Late) || has(Feature::Pauses);
        let keep_alive = Nanos::from_millis([1_000, 5_000, 15_000][size(&mut prng, 0, 2)]);
        Self {
            rest: if has(Feature::Rests) {
                Nanos(3 * keep_alive.0)
            } else {
                Nanos::ZERO
            },
            provoked: provoked(&features),
            tolerance: Tolerance::Only {
                device: has(Feature::Errors),
                gone: has(Feature::OtherVolume),
                late,
                forgets: has(Feature::Foreign) && has(Feature::Cache),
            },
            target_cores,
            volumes,
            blocks,
            block_bytes,
            hosts,
            applications,
            queues,
            workload,
            command_timeout: Nanos::from_secs(if has(Feature::Late) { 2 } else { 30 }),
            keep_alive,
            limits: limits(options.seed, has(Feature::Foreign), has(Feature::Small)),
            network: network(options.seed, &features),
            pace: if has(Feature::Stalls) {
                Pace {
                    stall_one_in: 50,
                    stall_max: Nanos::from_millis(2),
                    send_per_kib: Nanos(200),
                }
            } else {
                Pace::default()
            },
            disk: disk(options.seed, &features),
            lie_one_in: if has(Feature::Liar) {
                1 + prng.below(20)
            } else {
                0
            },
            events,
            calm_after,
            features,
        }
    }
}

fn provoked(features: &BTreeSet<Feature>) -> Provoked {
    let losses = [
        Feature::Cuts,
        Feature::Refusals,
        Feature::Flips,
        Feature::Pauses,
        Feature::Late,
        Feature::TargetCrashes,
    ];
    Provoked {
        losses: losses.iter().any(|feature| features.contains(feature)),
        violations: features.contains(&Feature::Flips),
    }
}

fn limits(seed: u64, foreign: bool, small: bool) -> Limits {
    let limits = Limits {
        end_controller: !foreign,
        ..Limits::default()
    };
    if !small {
        return limits;
    }
    let mut prng = draws(seed, 3);
    Limits {
        in_capsule_bytes: [0, 512, 4096][size(&mut prng, 0, 2)],
        transfer_bytes: [8192, 16_384, 65_536][size(&mut prng, 0, 2)],
        h2c_data_bytes: 4096 << prng.below(3),
        r2t_bytes: 4096 << prng.below(3),
        r2ts_per_command: 1 + u16::try_from(prng.below(4)).expect("a few"),
        queue_entries: [3, 17, 1024][size(&mut prng, 0, 2)],
        ..limits
    }
}

fn network(seed: u64, features: &BTreeSet<Feature>) -> NetworkFaults {
    let mut prng = draws(seed, 4);
    let mut one_in = |feature, min: u64, max: u64| {
        let drawn = min + prng.below(max - min);
        if features.contains(&feature) {
            drawn
        } else {
            0
        }
    };
    let cut_one_in = one_in(Feature::Cuts, 40, 600);
    let partition_one_in = one_in(Feature::Partitions, 1, 5);
    let silent_one_in = one_in(Feature::Silence, 2, 20);
    let refuse_one_in = one_in(Feature::Refusals, 2, 8);
    let flip_one_in = one_in(Feature::Flips, 20, 500);
    let pieces = one_in(Feature::Pieces, 2, 9);
    NetworkFaults {
        delay_max: if pieces > 0 {
            Nanos::from_millis(1)
        } else {
            NetworkFaults::CALM.delay_max
        },
        pieces_max: pieces.max(1),
        cut_one_in,
        linger_max: Nanos::from_millis(prng.below(2_000)),
        partition_one_in,
        refuse_one_in,
        silent_one_in,
        flip_one_in,
        ..NetworkFaults::CALM
    }
}

/// A foreign target's disk does late writes by so much sooner, and its cores stand still for so much
/// less: within the margin that a host adds to the keep-alive time-out before it sends lost writes
/// again. What is done later than that no host can know of, and it may undo what was acknowledged
/// since (docs/decisions/0004-replay.md).
const LATE_AT_FOREIGN: u64 = 64;

fn disk(seed: u64, features: &BTreeSet<Feature>) -> DiskFaults {
    let mut prng = draws(seed, 5);
    let has = |feature| features.contains(&feature);
    let slow = Nanos::from_micros(10 + prng.below(2_000));
    let (late, late_by) = (50 + prng.below(400), Nanos::from_secs(1 + prng.below(20)));
    let fail = 20 + prng.below(200);
    DiskFaults {
        delay_max: if has(Feature::Slow) {
            slow
        } else {
            Nanos::ZERO
        },
        late_one_in: if has(Feature::Late) { late } else { 0 },
        late_by,
        late_writes_by: if has(Feature::Foreign) {
            Nanos(late_by.0 / LATE_AT_FOREIGN)
        } else {
            late_by
        },
        fail_one_in: if has(Feature::Errors) { fail } else { 0 },
    }
}

fn events(
    seed: u64,
    features: &BTreeSet<Feature>,
    (cores, hosts): (usize, usize),
    calm_after: u64,
) -> Vec<Event> {
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
    add(6, Feature::TargetCrashes, 4, &|prng| {
        let (power, other) = (prng.chance(1, 2), prng.chance(1, 3));
        Incident::CrashTarget {
            down: Nanos::from_millis(prng.below(3_000)),
            power: power && has(Feature::PowerLoss),
            other: other && has(Feature::OtherVolume),
        }
    });
    add(7, Feature::HostCrashes, 3, &|prng| {
        Incident::CrashHost(size(prng, 0, hosts as u64 - 1))
    });
    add(8, Feature::Pauses, 4, &|prng| {
        let pause = Nanos::from_millis(1 << prng.below(16));
        if prng.chance(1, 2) {
            let core = size(prng, 0, cores as u64 - 1);
            let foreign = has(Feature::Foreign);
            let part = if foreign { LATE_AT_FOREIGN } else { 1 };
            Incident::PauseTarget(core, Nanos(pause.0 / part))
        } else {
            Incident::PauseHost(size(prng, 0, hosts as u64 - 1), pause)
        }
    });
    add(9, Feature::Knobs, 20, &|_| Incident::TurnKnobs);
    events.sort_by_key(|event| event.after);
    events
}
