//! Strict service, quanta and floors: examples and random backlogs.

use super::*;
use crate::limits::{FLOOR_WINDOW, FLOOR_WINDOW_BYTES, QUANTUM_BYTES};
use base::Prng;
use proptest::prelude::*;

use Class::{Latency as L, Throughput as T};

const STRICT: ClassSchedulerRules = ClassSchedulerRules {
    order: Order::Strict,
    quantum_bytes: QUANTUM_BYTES,
    floor_permille: PerClass::of([0, 0]),
    window: Window::Bytes(FLOOR_WINDOW_BYTES),
};

fn floor(permille: u16, window: Window) -> ClassSchedulerRules {
    ClassSchedulerRules {
        floor_permille: PerClass::of([0, permille]),
        window,
        ..STRICT
    }
}

fn backlog(latency: u64, throughput: u64) -> PerClass<u64> {
    PerClass::of([latency, throughput])
}

#[test]
fn latency_is_exhausted_first_and_looked_at_after_every_quantum() {
    let mut core = ClassScheduler::new(STRICT);
    let mut now = Time(0);
    let mut serve = |waiting: PerClass<u64>| {
        let grant = core.next(now, &waiting)?;
        now = now + Nanos(1_000);
        core.served(now, grant.bytes);
        Some((grant.class, grant.bytes))
    };
    assert_eq!(serve(backlog(0, 0)), None);
    assert_eq!(
        serve(backlog(1 << 20, 1 << 20)),
        Some((L, 1 << 20)),
        "to exhaustion"
    );
    assert_eq!(serve(backlog(0, 1 << 20)), Some((T, QUANTUM_BYTES)));
    assert_eq!(serve(backlog(0, 900_000)), Some((T, QUANTUM_BYTES)));
    assert_eq!(
        serve(backlog(4096, 800_000)),
        Some((L, 4096)),
        "it takes over"
    );
    assert_eq!(serve(backlog(0, 1)), Some((T, 1)));
    assert_eq!(serve(backlog(4096, 0)), Some((L, 4096)), "nobody gave way");
    let expected = ClassSchedulerCounters {
        quanta: PerClass::of([3, 3]),
        bytes: PerClass::of([(1 << 20) + 8192, 2 * QUANTUM_BYTES + 1]),
        preemptions: PerClass::of([0, 1]),
        floor_grants: PerClass::of([0, 0]),
    };
    assert_eq!(*core.counters(), expected);
}

#[test]
fn without_a_floor_endless_latency_is_all_there_is() {
    let mut core = ClassScheduler::new(STRICT);
    for _ in 0..1_000 {
        assert_eq!(
            core.next(Time(0), &backlog(4096, 1 << 30))
                .map(|grant| grant.class),
            Some(L)
        );
        core.served(Time(0), 4096);
    }
}

#[test]
fn a_floor_in_time_counts_what_serving_takes() {
    // A Throughput quantum takes 10 µs and a Latency grant 5 µs; the floor is a fifth of the time.
    let mut core = ClassScheduler::new(floor(200, Window::Time(FLOOR_WINDOW)));
    let (mut now, mut time) = (Time(0), backlog(0, 0));
    for _ in 0..100_000 {
        let grant = core.next(now, &backlog(4096, 1 << 30)).expect("both wait");
        let takes = match grant.class {
            L => Nanos::from_micros(5),
            T => Nanos::from_micros(10),
        };
        now = now + takes;
        time[grant.class] += takes.0;
        core.served(now, grant.bytes);
    }
    let permille = time[T] * 1000 / (time[L] + time[T]);
    assert!((198..=202).contains(&permille), "{permille}");
    assert_eq!(core.counters().quanta[T], core.counters().floor_grants[T]);
}

#[test]
fn who_did_not_wait_is_owed_nothing() {
    let mut core = ClassScheduler::new(floor(100, Window::Bytes(FLOOR_WINDOW_BYTES)));
    for _ in 0..10_000 {
        core.next(Time(0), &backlog(1 << 20, 0));
        core.served(Time(0), 1 << 20);
    }
    // When it arrives, a whole window passes before it is served out of order.
    assert_eq!(latency_before_throughput(&mut core), FLOOR_WINDOW_BYTES);
    assert_eq!(core.counters().floor_grants[T], 1);
}

/// Serves both classes, which always wait, until `Throughput` is served; returns the `Latency`
/// bytes served before.
fn latency_before_throughput(core: &mut ClassScheduler) -> u64 {
    let mut before = 0;
    while before <= FLOOR_WINDOW_BYTES {
        let grant = core
            .next(Time(0), &backlog(1 << 30, 1 << 30))
            .expect("both wait");
        core.served(Time(0), grant.bytes);
        if grant.class == T {
            return before;
        }
        before += grant.bytes;
    }
    panic!("Throughput starves");
}

/// The documented bound for endless work of both classes: while `Throughput` waits, the bytes
/// served never exceed the debt of one window, or the overpayment of the last quantum.
#[test]
fn endless_latency_starves_nobody_with_a_floor_for_longer_than_is_said() {
    for permille in [1, 10, 50, 100, 500, 999] {
        let mut core = ClassScheduler::new(floor(permille, Window::Bytes(FLOOR_WINDOW_BYTES)));
        let share = u64::from(permille);
        // The `Latency` bytes for which the floor grants one quantum.
        let overpaid = QUANTUM_BYTES * (1_000 - share) / share;
        let longest = FLOOR_WINDOW_BYTES.max(overpaid) + QUANTUM_BYTES;
        let (mut waited, mut turns) = (0, 0);
        while turns < 100 {
            let both = backlog(1 << 30, 1 << 30);
            let grant = core.next(Time(0), &both).expect("both wait");
            core.served(Time(0), grant.bytes);
            if grant.class == T {
                (waited, turns) = (0, turns + 1);
            } else {
                waited += grant.bytes;
            }
            assert!(waited <= longest, "{permille}: {waited} of {longest}");
        }
    }
}

#[test]
fn who_stops_waiting_gives_up_what_it_was_owed() {
    let mut core = ClassScheduler::new(floor(100, Window::Bytes(FLOOR_WINDOW_BYTES)));
    let quanta = FLOOR_WINDOW_BYTES / QUANTUM_BYTES;
    for _ in 1..quanta {
        assert_eq!(
            core.next(Time(0), &backlog(1 << 30, 1))
                .map(|grant| grant.class),
            Some(L)
        );
        core.served(Time(0), QUANTUM_BYTES);
    }
    core.next(Time(0), &backlog(1, 0));
    core.served(Time(0), 1);
    assert_eq!(latency_before_throughput(&mut core), FLOOR_WINDOW_BYTES);
}

#[test]
fn what_was_overpaid_is_paid_back_also_while_it_does_not_wait() {
    let window = Window::Bytes(QUANTUM_BYTES);
    let mut core = ClassScheduler::new(ClassSchedulerRules {
        quantum_bytes: QUANTUM_BYTES,
        ..floor(100, window)
    });
    assert_eq!(latency_before_throughput(&mut core), QUANTUM_BYTES);
    let steady = latency_before_throughput(&mut core.clone());
    assert_eq!(steady, 9 * QUANTUM_BYTES, "a tenth is what it gets");
    core.next(Time(0), &backlog(1 << 30, 0));
    core.served(Time(0), 1 << 30);
    assert_eq!(latency_before_throughput(&mut core), QUANTUM_BYTES);
}

#[test]
fn round_robin_serves_a_quantum_each() {
    let mut core = ClassScheduler::new(ClassSchedulerRules {
        order: Order::RoundRobin,
        ..STRICT
    });
    let mut served = backlog(0, 0);
    for _ in 0..100 {
        let grant = core
            .next(Time(0), &backlog(1 << 30, 1 << 30))
            .expect("both wait");
        assert_eq!(grant.bytes, QUANTUM_BYTES);
        served[grant.class] += grant.bytes;
        core.served(Time(0), grant.bytes);
    }
    assert_eq!(served[L], served[T]);
    let alone = core.next(Time(0), &backlog(1 << 30, 0)).expect("it waits");
    assert_eq!((alone.class, alone.bytes), (L, 1 << 30));
}

#[test]
fn a_word_without_a_grant_and_a_turned_knob_do_no_harm() {
    let mut core = ClassScheduler::new(STRICT);
    core.served(Time(5), 1 << 40);
    assert_eq!(*core.counters(), ClassSchedulerCounters::default());
    core.next(Time(0), &backlog(1, 1));
    core.reconfigure(floor(1, Window::Time(Nanos(u64::MAX))));
    core.served(Time::NEVER, u64::MAX);
    assert_eq!(
        core.next(Time(0), &backlog(0, 9)).map(|grant| grant.class),
        Some(T)
    );
    core.served(Time::NEVER, 9);
    assert_eq!(core.next(Time(0), &backlog(0, 0)), None);
}

proptest! {
    /// Random arrivals and a floor in bytes: whenever Throughput waits, it gets its share of the
    /// bytes served, less one window's share and one grant.
    #[test]
    fn the_floor_is_kept_and_nothing_else_goes_out_of_turn(
        seed in any::<u64>(),
        permille in 0_u16..=500,
        quantum in 4096_u64..200_000,
        window in 4096_u64..3_000_000,
        latency_tenths in 0_u64..=10,
    ) {
        let rules = ClassSchedulerRules {
            quantum_bytes: quantum,
            ..floor(permille, Window::Bytes(window))
        };
        let mut prng = Prng::from_seed(seed);
        let mut core = ClassScheduler::new(rules);
        let (mut waiting, mut come, mut gone) = (backlog(0, 0), backlog(0, 0), backlog(0, 0));
        // Bytes served since Throughput began to wait: in total, and of Throughput.
        let (mut all, mut its) = (0_u64, 0_u64);
        for _ in 0..3_000 {
            let mut arrive = |class: Class, bytes: u64| {
                waiting[class] += bytes;
                come[class] += bytes;
            };
            if prng.chance(latency_tenths, 10) {
                arrive(L, 4096 * (1 + prng.below(40)));
            }
            if prng.chance(1, 4) {
                arrive(T, 65_536 * (1 + prng.below(4)));
            }
            let Some(grant) = core.next(Time(0), &waiting) else {
                prop_assert_eq!(waiting, backlog(0, 0));
                continue;
            };
            prop_assert!(grant.bytes > 0 && grant.bytes <= waiting[grant.class]);
            if grant.class == T {
                prop_assert!(grant.bytes <= quantum, "a quantum between two looks");
                prop_assert!(waiting[L] == 0 || grant.by_floor, "out of turn");
            }
            let waited = waiting[T] > 0;
            // Sometimes a socket accepts less.
            let bytes = if prng.chance(1, 10) { prng.below(grant.bytes + 1) } else { grant.bytes };
            waiting[grant.class] -= bytes;
            gone[grant.class] += bytes;
            core.served(Time(0), bytes);
            if waited {
                all += bytes;
                its += if grant.class == T { bytes } else { 0 };
                let promised = u64::from(permille) * (all.saturating_sub(window)) / 1000;
                prop_assert!(its + 2 * quantum >= promised, "{its} of {all}");
            }
            if waiting[T] == 0 {
                (all, its) = (0, 0);
            }
        }
        let counters = core.counters();
        prop_assert_eq!(counters.bytes, gone);
        for class in Class::ALL {
            prop_assert_eq!(come[class], gone[class] + waiting[class]);
            prop_assert!(counters.floor_grants[class] <= counters.quanta[class]);
        }
        if permille == 0 {
            prop_assert_eq!(counters.floor_grants[T], 0);
        }
    }

    /// Endless work of both classes: Throughput gets exactly its floor.
    #[test]
    fn a_floor_is_not_a_feast(
        permille in 1_u16..=500,
        quantum in 4096_u64..200_000,
        window in 65_536_u64..3_000_000,
    ) {
        let rules = ClassSchedulerRules { quantum_bytes: quantum, ..floor(permille, Window::Bytes(window)) };
        let mut core = ClassScheduler::new(rules);
        let mut gone = backlog(0, 0);
        while gone[L] + gone[T] < 400_000_000 {
            let grant = core.next(Time(0), &backlog(1 << 30, 1 << 30)).expect("both wait");
            gone[grant.class] += grant.bytes;
            core.served(Time(0), grant.bytes);
        }
        let promised = u64::from(permille) * (gone[L] + gone[T]) / 1000;
        prop_assert!(gone[T].abs_diff(promised) <= 2 * quantum + window, "{gone:?} {promised}");
    }
}
