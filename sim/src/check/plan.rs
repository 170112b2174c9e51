//! The plan of a run, drawn from its seed.

mod incidents;

use super::feature::{Feature, complete};
use super::path::HostPath;
use super::proofs::Proofs;
use crate::application::{Tolerance, Workload};
use crate::disk::DiskFaults;
use crate::host_core::Provoked;
use crate::network::{Lies, NetworkFaults};
use crate::shared::Memory;
use crate::shared::Pace;
use base::{Nanos, Prng};
pub(super) use incidents::{ByHand, KeyChange, Stranger, TakeOver};
pub use incidents::{Event, Incident};
use incidents::{LATE_AT_FOREIGN, There, draws, events, size};
use reactor::BufferClass;
use std::collections::BTreeSet;
use target::Limits;

/// Identifies a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Seed of all draws.
    pub seed: u64,
    /// Features to leave out even if the seed draws them.
    pub without: BTreeSet<Feature>,
    /// Requests of each application; `None` for the number drawn from the seed.
    pub requests: Option<u64>,
}

/// The plan of a complete run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The features of the run.
    pub features: BTreeSet<Feature>,
    /// Targets, each on its own machine.
    pub targets: usize,
    /// Cores of each target.
    pub target_cores: usize,
    /// Per host: true if its applications submit through a switchboard.
    pub switched: Vec<bool>,
    /// I/O paths by host.
    pub paths: Vec<Option<HostPath>>,
    /// Volumes of each target, all namespaces of the same subsystem.
    pub volumes: usize,
    /// Blocks of each volume.
    pub blocks: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Hosts, all on the same subsystems.
    pub hosts: usize,
    /// Applications of each host on each target, each with its own channel.
    pub applications: usize,
    /// I/O queues of each channel.
    pub queues: u16,
    /// Workload of each application.
    pub workload: Workload,
    /// Length of each application's single pause.
    pub rest: Nanos,
    /// Disturbances of connections that the run provokes.
    pub provoked: Provoked,
    /// Errors that applications must tolerate.
    pub tolerance: Tolerance,
    /// Command timeout of the hosts.
    pub command_timeout: Nanos,
    /// Keep-alive timeout of the hosts.
    pub keep_alive: Nanos,
    /// Time without a connection after which hosts fail requests; they continue to reconnect.
    /// `None`: requests wait without limit.
    pub loss_timeout: Option<Nanos>,
    /// The target's limits.
    pub limits: Limits,
    /// Faults of the network until the faults end.
    pub network: NetworkFaults,
    /// Pace of the cores until the faults end.
    pub pace: Pace,
    /// Faults of the disks until the faults end.
    pub disk: DiskFaults,
    /// One send in this many of the host with changed PDUs is changed; 0 for never.
    pub lie_one_in: u64,
    /// Directions with changed PDUs.
    pub lies: Lies,
    /// Memory of each core.
    pub memory: Memory,
    /// Tokens per second of each volume; 0 if it is not scheduled.
    pub tokens_per_second: u64,
    /// Proofs of the hosts' names.
    pub proofs: Proofs,
    /// Incidents in order.
    pub events: Vec<Event>,
    /// Number of answers after which all faults end.
    pub calm_after: u64,
}

/// True if volumes have page caches. A resize waits for their cores by the real clock.
fn has_pages(features: &BTreeSet<Feature>) -> bool {
    features.contains(&Feature::PageCache) && !features.contains(&Feature::Resizes)
}

fn features(options: &Options) -> BTreeSet<Feature> {
    let mut features = BTreeSet::new();
    // Some runs have few features, some nearly all.
    let share = 1 + draws(options.seed, 1).below(8);
    for (purpose, feature) in (100..).zip(Feature::ALL) {
        let drawn = draws(options.seed, purpose).chance(share, 10);
        if drawn && !options.without.contains(&feature) {
            features.insert(feature);
        }
    }
    complete(features)
}

impl Plan {
    /// True if volumes have page caches.
    pub(super) fn has_pages(&self) -> bool {
        has_pages(&self.features)
    }

    /// Draws the limits of a target that restarts after a crash, with at least `queues_min` I/O
    /// queues.
    pub(super) fn limits_anew(&self, queues_min: u16, prng: &mut Prng) -> Limits {
        let mut limits = self.limits.clone();
        if prng.chance(1, 2) {
            limits = smaller(prng, limits);
        }
        if prng.chance(2, 3) {
            let more = u16::try_from(prng.below(6)).expect("a few");
            limits.io_queues = queues_min + more;
        }
        if prng.chance(1, 2) {
            limits.deallocate_blocks = 1 << prng.below(8);
        }
        if prng.chance(1, 4) {
            limits.extents = limits.extents.min(2 * u16::from(prng.chance(1, 2)));
        }
        limits
    }

    /// True if a host has a switchboard.
    pub(super) fn has_board(&self, host: usize) -> bool {
        self.switched[host] || self.paths[host].is_some_and(|path| path.switched)
    }

    /// Draws the run that `options` identify.
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
        let (targets, switched) = machines(options.seed, &features, hosts);
        let requests = options.requests.unwrap_or(drawn / targets as u64);
        let workload = Workload {
            requests,
            depth: size(&mut prng, 1, 24),
            blocks_max: 1 + prng.below(8),
            blocks_large: 1 + prng.below(blocks.min(128)),
        };
        let calm_after = requests * (targets * hosts * applications) as u64 * 3 / 4;
        let paths = paths(options.seed, &features, &switched);
        let there = There {
            targets,
            cores: target_cores,
            hosts,
            volumes,
            paths: paths.iter().any(Option::is_some),
        };
        let events = events(options.seed, &features, there, calm_after);
        let purposes = [29, 34].map(|purpose| draws(options.seed, purpose));
        let proofs = Proofs::draw(purposes, &features, hosts);
        let keep_alive = Nanos::from_millis([1_000, 5_000, 15_000][size(&mut prng, 0, 2)]);
        Self {
            rest: Nanos(u64::from(has(Feature::Rests)) * 3 * keep_alive.0),
            provoked: provoked(&features, proofs.is_all_tls()),
            tolerance: tolerance(&features),
            targets,
            target_cores,
            switched,
            volumes,
            blocks,
            block_bytes,
            hosts,
            applications,
            queues,
            workload,
            command_timeout: Nanos::from_secs(if has(Feature::Late) { 2 } else { 30 }),
            keep_alive,
            loss_timeout: has(Feature::KeepReconnecting).then(|| loss_timeout(options.seed)),
            limits: limits(options.seed, &features),
            network: network(options.seed, &features)
                .with_connections(connections(&paths, applications)),
            pace: pace(&features),
            disk: disk(options.seed, &features),
            paths,
            lies: Lies::ALL[size(&mut draws(options.seed, 12), 0, 2)],
            memory: memory(options.seed, has(Feature::Starved)),
            tokens_per_second: tokens_per_second(options.seed, has(Feature::Tokens)),
            lie_one_in: if has(Feature::Liar) {
                1 + prng.below(20)
            } else {
                0
            },
            proofs,
            events,
            calm_after,
            features,
        }
    }
}

/// Draws the number of targets, and which hosts have a switchboard.
fn machines(seed: u64, features: &BTreeSet<Feature>, hosts: usize) -> (usize, Vec<bool>) {
    let mut prng = draws(seed, 10);
    let targets = size(&mut prng, 2, 3);
    let switched = (0..hosts).map(|_| prng.chance(1, 2) && features.contains(&Feature::Switched));
    let switched = switched.collect();
    let several = features.contains(&Feature::Targets);
    (if several { targets } else { 1 }, switched)
}

/// Draws the I/O path of each host that has one.
fn paths(seed: u64, features: &BTreeSet<Feature>, switched: &[bool]) -> Vec<Option<HostPath>> {
    let (mut prng, mut over_boards) = (draws(seed, 23), draws(seed, 25));
    let has = features.contains(&Feature::HostPaths);
    let hosts = switched.iter();
    let path = |&switched: &bool| {
        let (mut path, drawn) = (HostPath::draw(&mut prng), prng.chance(1, 3));
        path.switched = over_boards.chance(1, 2) && features.contains(&Feature::SwitchedPaths);
        (has && drawn && !switched).then_some(path)
    };
    hosts.map(path).collect()
}

/// Returns the number of connections that an association of a host with an I/O path makes for its
/// applications; 1 if no host has a path.
fn connections(paths: &[Option<HostPath>], applications: usize) -> u64 {
    let threads = paths.iter().flatten().map(|path| path.threads).max();
    threads.map_or(1, |threads| (threads * applications) as u64)
}

/// Draws the tokens of each volume; 0 if it is not `scheduled`.
fn tokens_per_second(seed: u64, scheduled: bool) -> u64 {
    u64::from(scheduled) * (1_000 << draws(seed, 13).below(6))
}

/// Draws a time that ends after some losses of a connection, but before other losses.
fn loss_timeout(seed: u64) -> Nanos {
    let choices = [20, 100, 500, 2_000, 8_000];
    Nanos::from_millis(choices[size(&mut draws(seed, 19), 0, 4)])
}

/// Returns the errors that the features provoke.
fn tolerance(features: &BTreeSet<Feature>) -> Tolerance {
    let has = |feature| features.contains(&feature);
    let Provoked {
        losses, given_up, ..
    } = provoked(features, false);
    Tolerance::Only {
        device: has(Feature::Errors),
        gone: has(Feature::OtherVolume) || has(Feature::Removals) || has(Feature::Subsystems),
        changes: has(Feature::Resizes) || has(Feature::Rights),
        late: [
            Feature::Late,
            Feature::Pauses,
            Feature::CorePauses,
            Feature::Jumps,
            Feature::GiveUps,
        ]
        .into_iter()
        .any(has),
        unconnected: has(Feature::KeepReconnecting) && (losses || given_up)
            || has(Feature::OtherLimits),
        forgets: has(Feature::Foreign) && (has(Feature::Cache) || has_pages(features)),
    }
}

fn pace(features: &BTreeSet<Feature>) -> Pace {
    let stalls = if features.contains(&Feature::Stalls) {
        Pace {
            stall_one_in: 50,
            stall_max: Nanos::from_millis(2),
            send_per_kib: Nanos(200),
            poll_one_in: 0,
        }
    } else {
        Pace::default()
    };
    Pace {
        poll_one_in: if features.contains(&Feature::Polls) {
            3
        } else {
            0
        },
        ..stalls
    }
}

/// Draws memory sizes. Few buffers hold the largest transfer and one transfer of another size.
fn memory(seed: u64, starved: bool) -> Memory {
    if !starved {
        return Memory::default();
    }
    let mut prng = draws(seed, 11);
    let mut few = |most| size(&mut prng, 2, most);
    let class = |bytes, count| BufferClass { bytes, count };
    Memory {
        buffers: vec![
            class(4096, 6 + few(32)),
            class(128 * 1024, few(6)),
            class(1 << 20, few(3)),
        ],
        receive_buffers: few(4),
    }
}

fn provoked(features: &BTreeSet<Feature>, all_tls: bool) -> Provoked {
    let losses = [
        Feature::Cuts,
        Feature::Refusals,
        Feature::Flips,
        Feature::Pauses,
        Feature::CorePauses,
        Feature::Late,
        Feature::TargetCrashes,
        Feature::Jumps,
        Feature::Denials,
        Feature::Subsystems,
    ];
    let has = |feature| features.contains(&feature);
    // Hosts that saw no write cache query again when a namespace with a write cache is added.
    let appears = (has(Feature::Cache) || has_pages(features))
        && (has(Feature::Removals) || has(Feature::Rights));
    // A removed secret ends the controllers that it has authenticated.
    let revoked = has(Feature::Keys) && has(Feature::Chap);
    Provoked {
        losses: appears || revoked || losses.into_iter().any(has),
        // A record with a flipped bit is no violation of NVMe/TCP.
        violations: has(Feature::Flips) && !all_tls,
        given_up: has(Feature::GiveUps) || has(Feature::ThreadDeaths),
    }
}

fn limits(seed: u64, features: &BTreeSet<Feature>) -> Limits {
    let has = |feature| features.contains(&feature);
    let foreign = has(Feature::Foreign);
    let mut limits = Limits {
        end_controller: !foreign,
        extents: if foreign {
            0
        } else {
            Limits::default().extents
        },
        ..Limits::default()
    };
    if has(Feature::Small) {
        limits = smaller(&mut draws(seed, 3), limits);
    }
    if has(Feature::Splits) {
        limits.transfer_bytes = 8192;
        limits.deallocate_blocks = 8;
    }
    if has(Feature::ByHand) {
        limits.deallocate_piece_bytes = PIECE_BYTES;
    }
    limits
}

/// Bytes of a piece of a Dataset Management: small, so that a command has more pieces than a device
/// takes at a time.
const PIECE_BYTES: u32 = 4096;

/// Returns these limits with random small transfers, capsules and queues.
fn smaller(prng: &mut Prng, limits: Limits) -> Limits {
    Limits {
        in_capsule_bytes: [0, 512, 4096][size(prng, 0, 2)],
        transfer_bytes: [8192, 16_384, 65_536][size(prng, 0, 2)],
        h2c_data_bytes: 4096 << prng.below(3),
        r2t_bytes: 4096 << prng.below(3),
        r2ts_per_command: 1 + u16::try_from(prng.below(4)).expect("a few"),
        queue_entries: [3, 17, 1024][size(prng, 0, 2)],
        ..limits
    }
}

/// Minimum average number of sends between two cuts if sends are small: a host needs a hundred
/// sends to connect, and with fewer it would retry for hours.
const SMALL_CUT_ONE_IN_MIN: u64 = 200;

/// Minimum average number of sends between two flipped bits of connections with TLS.
const TLS_FLIP_ONE_IN_MIN: u64 = 100;

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
    // With TLS a flipped bit costs the connection, like a cut.
    let flip_one_in = if features.contains(&Feature::Tls) && flip_one_in > 0 {
        flip_one_in.max(TLS_FLIP_ONE_IN_MIN)
    } else {
        flip_one_in
    };
    let pieces = one_in(Feature::Pieces, 2, 9);
    let small = features.contains(&Feature::Windows);
    let window_bytes = 4096 << prng.below(7);
    let cut_one_in = if small && cut_one_in > 0 {
        cut_one_in.max(SMALL_CUT_ONE_IN_MIN)
    } else {
        cut_one_in
    };
    NetworkFaults {
        window_bytes: if small {
            window_bytes
        } else {
            NetworkFaults::CALM.window_bytes
        },
        partial_one_in: if small { 16 } else { 0 },
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
        // Small sends are many, and a peer gives up after it has resent the same data too often.
        flip_one_in: flip_one_in * if small { 16 } else { 1 },
        ..NetworkFaults::CALM
    }
}

fn disk(seed: u64, features: &BTreeSet<Feature>) -> DiskFaults {
    let mut prng = draws(seed, 5);
    let has = |feature| features.contains(&feature);
    let slow = Nanos::from_micros(10 + prng.below(2_000));
    let (late, late_by) = (50 + prng.below(400), Nanos::from_secs(1 + prng.below(20)));
    let fail = 20 + prng.below(200);
    let at_foreign = Nanos(late_by.0 / LATE_AT_FOREIGN);
    let foreign = has(Feature::Foreign);
    DiskFaults {
        delay_max: if has(Feature::Slow) {
            slow
        } else {
            Nanos::ZERO
        },
        late_one_in: if has(Feature::Late) { late } else { 0 },
        // A path queues writes behind a late request, and a cache behind a page that is being read.
        late_by: if foreign && (has(Feature::Paths) || has_pages(features)) {
            at_foreign
        } else {
            late_by
        },
        late_writes_by: if foreign { at_foreign } else { late_by },
        fail_one_in: if has(Feature::Errors) { fail } else { 0 },
        tear_one_in: if has(Feature::Tears) { 4 } else { 0 },
    }
}
