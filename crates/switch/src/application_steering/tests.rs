//! Application steering compared with a naive form of the paper's algorithm, and its invariants.

use super::*;
use crate::limits::{APPLICATION_STEERING_PERIOD, LATENCY_LOAD_MAX_BYTES};
use base::Prng;
use proptest::prelude::*;

const PAPER: ApplicationSteeringRules = ApplicationSteeringRules {
    enabled: true,
    period: APPLICATION_STEERING_PERIOD,
    latency_load_max_bytes: LATENCY_LOAD_MAX_BYTES,
    hysteresis: Hysteresis::Paper,
};

const SETTLED: ApplicationSteeringRules = ApplicationSteeringRules {
    hysteresis: Hysteresis::Settled,
    ..PAPER
};

/// Algorithm 2 for one class on a table of (L, T) per core, updated as threads move.
fn model(
    rules: &ApplicationSteeringRules,
    class: Class,
    loads: &mut [(u64, u64)],
    threads: &[SteeredThread],
) -> Vec<Move> {
    let mut moves = Vec::new();
    for thread in threads {
        let home = thread.core.0 as usize;
        if thread.class != class || thread.pinned_by_user || thread.load_bytes == 0 {
            continue;
        }
        let may = |core: &usize| {
            thread
                .allowed
                .contains(CoreId(u32::try_from(*core).unwrap()))
        };
        let others: Vec<usize> = (0..loads.len())
            .filter(|core| *core != home)
            .filter(may)
            .collect();
        let sum = |core: usize| loads[core].0 + loads[core].1;
        let fits = |core: usize| 0 < loads[core].0 && loads[core].0 < rules.latency_load_max_bytes;
        let chosen = match class {
            Class::Latency => {
                let candidates: Vec<usize> = others.into_iter().filter(|&c| fits(c)).collect();
                let best = candidates.iter().copied().map(sum).min();
                let to = candidates.into_iter().find(|&core| Some(sum(core)) == best);
                to.filter(|&to| match rules.hysteresis {
                    Hysteresis::Paper => !fits(home) || sum(to) < sum(home),
                    Hysteresis::Settled => {
                        let calmer = loads[to].1 < loads[home].1 && sum(to) < sum(home);
                        let crowded = loads[home].0 >= rules.latency_load_max_bytes;
                        // Less load of its own kind, at least as much of the other, and still
                        // better with the thread's load added: only a crowded core is a reason to
                        // move.
                        let relief = sum(to) + thread.load_bytes < sum(home);
                        calmer || (crowded && loads[to].1 >= loads[home].1 && relief)
                    }
                })
            }
            Class::Throughput => {
                let candidates: Vec<usize> = others
                    .into_iter()
                    .filter(|&c| loads[c].0 < loads[home].0)
                    .collect();
                let best = candidates.iter().map(|&core| loads[core].1).min();
                let to = candidates
                    .into_iter()
                    .find(|&core| Some(loads[core].1) == best);
                to.filter(|&to| loads[to].1 < loads[home].1)
            }
        };
        if let Some(to) = chosen {
            let weight = |load: &mut (u64, u64)| match class {
                Class::Latency => load.0,
                Class::Throughput => load.1,
            };
            let (left, came) = (weight(&mut loads[home]), weight(&mut loads[to]));
            let left = left.saturating_sub(thread.load_bytes);
            let came = came + thread.load_bytes;
            match class {
                Class::Latency => (loads[home].0, loads[to].0) = (left, came),
                Class::Throughput => (loads[home].1, loads[to].1) = (left, came),
            }
            let to = CoreId(u32::try_from(to).unwrap());
            moves.push(Move {
                id: thread.id,
                from: thread.core,
                to,
            });
        }
    }
    moves
}

fn per_class(latency: u64, throughput: u64) -> PerClass<u64> {
    PerClass::from_fn(|class| match class {
        Class::Latency => latency,
        Class::Throughput => throughput,
    })
}

prop_compose! {
    fn thread(cores: u32)(
        latency in any::<bool>(),
        core in 0..cores,
        allowed in any::<u64>(),
        everywhere in any::<bool>(),
        pinned_by_user in prop::bool::weighted(0.1),
        load in prop_oneof![1 => Just(0_u64), 5 => 1_u64..120_000, 3 => 65_536_u64..2_000_000],
    ) -> SteeredThread {
        let every = CoreSet::first(1024);
        let some = (0..64).map(CoreId).filter(|core| allowed >> core.0 & 1 == 1).collect();
        SteeredThread {
            id: 0,
            class: if latency { Class::Latency } else { Class::Throughput },
            core: CoreId(core),
            allowed: if everywhere { every } else { some },
            pinned_by_user,
            load_bytes: load,
        }
    }
}

proptest! {
    #[test]
    fn it_decides_as_algorithm_2_does_and_keeps_its_promises(
        threads in prop::collection::vec(thread(12), 0..50),
        measured in prop::collection::vec(
            prop_oneof![
                1 => Just((0_u64, 0_u64)),
                4 => (0_u64..150_000, 0_u64..3_000_000),
                4 => (0_u64..200_000, prop_oneof![Just(0_u64), Just(1 << 20)]),
            ], 1..16),
        settled in any::<bool>(),
    ) {
        let rules = if settled { SETTLED } else { PAPER };
        let threads: Vec<SteeredThread> =
            (0..).zip(threads).map(|(id, thread)| SteeredThread { id, ..thread }).collect();
        let known: Vec<SteeredThread> =
            threads.iter().copied().filter(|t| (t.core.0 as usize) < measured.len()).collect();
        let loads: Vec<_> = measured.iter().map(|&(l, t)| per_class(l, t)).collect();
        let mut steering = ApplicationSteering::new(rules);
        let mut now = Time(77);
        for _ in 0..3 {
            let moves = steering.step(now, &loads, &threads).to_vec();
            let mut table = measured.clone();
            let mut expected = model(&rules, Class::Latency, &mut table, &known);
            expected.extend(model(&rules, Class::Throughput, &mut table, &known));
            prop_assert_eq!(&moves, &expected);
            for moved in &moves {
                let thread = &threads[usize::try_from(moved.id).unwrap()];
                prop_assert!(thread.allowed.contains(moved.to), "out of its set");
                prop_assert!(!thread.pinned_by_user);
                prop_assert_eq!(moved.from, thread.core);
                prop_assert!(moved.to != moved.from && (moved.to.0 as usize) < loads.len());
            }
            prop_assert_eq!(steering.step(now, &loads, &threads), &[], "not before its time");
            now = now + APPLICATION_STEERING_PERIOD;
        }
    }
}

/// Threads and their load on the cores, without other load.
struct World {
    threads: Vec<SteeredThread>,
    cores: usize,
    now: Time,
}

impl World {
    fn new(cores: usize, threads: &[(Class, u32, u64)]) -> Self {
        let every = CoreSet::first(cores);
        let made = (0..)
            .zip(threads)
            .map(|(id, &(class, core, load_bytes))| SteeredThread {
                id,
                class,
                core: CoreId(core),
                allowed: every,
                pinned_by_user: false,
                load_bytes,
            });
        Self {
            threads: made.collect(),
            cores,
            now: Time::ZERO,
        }
    }

    fn loads(&self) -> Vec<PerClass<u64>> {
        let mut loads = vec![per_class(0, 0); self.cores];
        for thread in &self.threads {
            loads[thread.core.0 as usize][thread.class] += thread.load_bytes;
        }
        loads
    }

    fn step(&mut self, steering: &mut ApplicationSteering) -> usize {
        let loads = self.loads();
        let moves = steering.step(self.now, &loads, &self.threads).to_vec();
        for moved in &moves {
            self.threads[usize::try_from(moved.id).unwrap()].core = moved.to;
        }
        self.now = self.now + APPLICATION_STEERING_PERIOD;
        moves.len()
    }

    fn where_they_are(&self) -> Vec<u32> {
        self.threads.iter().map(|thread| thread.core.0).collect()
    }
}

use Class::{Latency as L, Throughput as T};

#[test]
fn the_ablation_ends_with_the_two_apart() {
    for rules in [PAPER, SETTLED] {
        let mut world = World::new(2, &[(L, 0, 4096), (T, 0, 2 << 20)]);
        let mut steering = ApplicationSteering::new(rules);
        assert_eq!(
            world.step(&mut steering),
            1,
            "L finds no other core with Latency load, and T leaves"
        );
        assert_eq!(world.where_they_are(), [0, 1]);
        for _ in 0..10 {
            assert_eq!(world.step(&mut steering), 0, "and that is where they stay");
        }
        let expected = ApplicationSteeringCounters {
            steps: 11,
            moved: per_class(0, 1),
            cut_short: 0,
        };
        assert_eq!(*steering.counters(), expected);
    }
}

#[test]
fn six_and_six_on_six_cores_end_in_two_groups() {
    let mut apps: Vec<_> = (0..6).map(|core| (L, core, 4096)).collect();
    apps.extend((0..6).map(|core| (T, core, (1 << 20) + u64::from(core))));
    let mut world = World::new(6, &apps);
    let mut steering = ApplicationSteering::new(SETTLED);
    for _ in 0..100 {
        world.step(&mut steering);
    }
    assert_eq!(
        world.step(&mut steering) + world.step(&mut steering),
        0,
        "they have settled"
    );
    let mixed = world
        .loads()
        .iter()
        .filter(|load| load[L] > 0 && load[T] > 0)
        .count();
    assert_eq!(mixed, 0, "{:?}", world.where_they_are());
}

#[test]
fn two_do_not_jump_to_the_same_core_on_stale_numbers() {
    // Two Throughput threads alongside Latency work, and two free cores: one each.
    let mut world = World::new(3, &[(L, 0, 4096), (T, 0, 1 << 20), (T, 0, 1 << 20)]);
    let mut steering = ApplicationSteering::new(SETTLED);
    world.step(&mut steering);
    world.step(&mut steering);
    // The first thread sees two free cores and takes the lower; the second finds core 2 less
    // loaded.
    assert_eq!(world.where_they_are(), [0, 1, 2]);
}

#[test]
fn the_settled_rule_comes_to_rest_in_random_worlds() {
    let mut prng = Prng::from_seed(2021);
    for _ in 0..300 {
        let cores = 2 + prng.below(15);
        let apps: Vec<_> = (0..1 + prng.below(60))
            .map(|_| {
                let core = u32::try_from(prng.below(cores)).unwrap();
                if prng.chance(1, 2) {
                    (L, core, 1 + prng.below(16_384))
                } else {
                    (T, core, 65_536 + prng.below(1 << 21))
                }
            })
            .collect();
        let mut world = World::new(usize::try_from(cores).unwrap(), &apps);
        let mut steering = ApplicationSteering::new(SETTLED);
        let still = (0..2_000)
            .map(|_| world.step(&mut steering))
            .scan(0, |quiet, moves| {
                *quiet = if moves == 0 { *quiet + 1 } else { 0 };
                Some(*quiet)
            })
            .any(|quiet| quiet == 4);
        assert!(still, "cores {cores}, threads {apps:?}");
    }
}

#[test]
fn a_full_core_takes_no_more_latency_threads() {
    // Core 1 has less load than core 0 in total, but its Latency load is at the limit.
    let loads = [
        per_class(4096, 9 << 20),
        per_class(LATENCY_LOAD_MAX_BYTES, 0),
    ];
    let thread = World::new(2, &[(L, 0, 4096)]).threads;
    let mut steering = ApplicationSteering::new(SETTLED);
    assert_eq!(steering.step(Time(0), &loads, &thread), &[]);
    let room = [loads[0], per_class(LATENCY_LOAD_MAX_BYTES - 1, 0)];
    steering.reconfigure(SETTLED);
    let moves = steering.step(Time(1), &room, &thread);
    assert_eq!(
        moves,
        &[Move {
            id: 0,
            from: CoreId(0),
            to: CoreId(1)
        }]
    );
}

#[test]
fn a_step_moves_so_many_and_the_next_one_goes_on_there() {
    let mut apps = vec![(L, 0, 4096); 2];
    apps[1] = (L, 1, 4096);
    apps.extend(vec![(T, 0, 65_536); 3 * MOVES_PER_STEP_MAX]);
    let mut world = World::new(64, &apps);
    world.threads[0].pinned_by_user = true;
    let mut steering = ApplicationSteering::new(SETTLED);
    assert_eq!(world.step(&mut steering), MOVES_PER_STEP_MAX);
    assert_eq!(steering.counters().cut_short, 1);
    let first_left = world.where_they_are()[2..]
        .iter()
        .position(|&core| core == 0)
        .unwrap();
    assert_eq!(world.step(&mut steering), MOVES_PER_STEP_MAX);
    assert_ne!(world.where_they_are()[2 + first_left], 0, "it was its turn");
}

#[test]
fn threads_that_will_not_move_do_not_keep_others_from_it() {
    // The caller can move none of them, for example because the kernel refuses; each still gets its
    // turn.
    let mut apps = vec![(L, 0, 4096)];
    apps.extend(vec![(T, 0, 65_536); 2 * MOVES_PER_STEP_MAX]);
    let world = World::new(64, &apps);
    let mut steering = ApplicationSteering::new(SETTLED);
    let mut asked = std::collections::BTreeSet::new();
    for step in 0..2 {
        let now = Time(step * APPLICATION_STEERING_PERIOD.0);
        let moves = steering.step(now, &world.loads(), &world.threads);
        asked.extend(moves.iter().map(|moved| moved.id));
    }
    assert_eq!(asked.len(), 2 * MOVES_PER_STEP_MAX);
}

#[test]
fn switched_off_or_with_strange_input_nothing_moves() {
    let mut world = World::new(2, &[(L, 0, 4096), (T, 0, 2 << 20)]);
    let mut off = ApplicationSteering::new(ApplicationSteeringRules {
        enabled: false,
        ..SETTLED
    });
    assert_eq!(off.next(), Time::NEVER);
    assert_eq!(world.step(&mut off) + world.step(&mut off), 0);
    off.step(Time::NEVER, &world.loads(), &world.threads);
    assert_eq!(off.counters().steps, 0);
    world.threads[1].core = CoreId(u32::MAX);
    let mut steering = ApplicationSteering::new(SETTLED);
    let loads = vec![per_class(u64::MAX, u64::MAX); CORES_MAX + 5];
    for step in 0..4 {
        let now = Time(step * APPLICATION_STEERING_PERIOD.0);
        assert_eq!(steering.step(now, &loads, &world.threads), &[]);
    }
    assert_eq!(steering.step(Time::NEVER, &[], &world.threads), &[]);
}

#[test]
fn each_class_is_steered_every_period() {
    // [blk-switch §3.3]: every class is steered every 10 ms, not one class every 10 ms.
    let all = [(L, 0, 4096), (T, 0, 1 << 20), (L, 1, 4096), (T, 1, 4 << 20)];
    let mut world = World::new(3, &all);
    world.threads[0].pinned_by_user = true;
    world.threads[3].pinned_by_user = true;
    let mut steering = ApplicationSteering::new(PAPER);
    assert_eq!(world.step(&mut steering), 2, "one of each class");
    assert_eq!(world.where_they_are(), [0, 2, 0, 1]);
    assert_eq!(steering.next(), Time::ZERO + APPLICATION_STEERING_PERIOD);
}
