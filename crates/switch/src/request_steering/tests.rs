//! Request steering compared with a naive form of the paper's algorithm, and its invariants.

use super::*;
use crate::limits::{NEARLY_FULL_REQUESTS, STEERING_THRESHOLD_BYTES};
use proptest::prelude::*;
use std::cell::RefCell;

const THRESHOLD: u64 = STEERING_THRESHOLD_BYTES;

const PLAIN: RequestSteeringRules = RequestSteeringRules {
    enabled: true,
    threshold_bytes: THRESHOLD,
    preference: Preference::None,
};

const REFINED: RequestSteeringRules = RequestSteeringRules {
    preference: Preference::NearlyFull {
        requests: NEARLY_FULL_REQUESTS,
    },
    ..PLAIN
};

/// Algorithm 1, line by line, with the same random numbers.
fn model(
    rules: &RequestSteeringRules,
    prng: &mut Prng,
    local: usize,
    loads: &[Option<EgressLoad>],
) -> usize {
    if loads[local].is_some_and(|egress| egress.throughput_bytes < rules.threshold_bytes) {
        return local;
    }
    let mut candidates: Vec<usize> = (0..loads.len())
        .filter(|&core| loads[core].is_some())
        .collect();
    candidates.retain(|&core| loads[core].unwrap().throughput_bytes <= rules.threshold_bytes);
    if let Preference::NearlyFull { requests } = rules.preference {
        let preferred = |core: &usize| {
            let egress = loads[*core].unwrap();
            egress.latency_bytes == 0 && egress.waiting_requests >= requests
        };
        if candidates.iter().any(preferred) {
            candidates.retain(preferred);
        }
    }
    let mut draw = |pool: &mut Vec<usize>| {
        let index = usize::try_from(prng.below(pool.len() as u64)).unwrap();
        pool.remove(index)
    };
    match candidates.len() {
        0 => local,
        1 => candidates[0],
        _ => {
            let (one, other) = (draw(&mut candidates), draw(&mut candidates));
            let bytes = |core: usize| loads[core].unwrap().throughput_bytes;
            if bytes(other) < bytes(one) {
                other
            } else {
                one
            }
        }
    }
}

fn egress() -> impl Strategy<Value = Option<EgressLoad>> {
    let bytes = prop_oneof![
        4 => 0..2 * THRESHOLD,
        1 => Just(THRESHOLD),
        1 => Just(0),
        1 => any::<u64>(),
    ];
    let latency = prop_oneof![Just(0_u64), any::<u64>()];
    let load =
        (bytes, latency, 0_u32..20).prop_map(|(throughput_bytes, latency_bytes, waiting)| {
            EgressLoad {
                throughput_bytes,
                latency_bytes,
                waiting_requests: waiting,
            }
        });
    prop_oneof![9 => load.prop_map(Some), 1 => Just(None)]
}

proptest! {
    #[test]
    fn it_decides_as_algorithm_1_does(
        worlds in prop::collection::vec(
            (prop::collection::vec(egress(), 1..24), any::<usize>()), 1..40),
        seed in any::<u64>(),
        refined in any::<bool>(),
    ) {
        let rules = if refined { REFINED } else { PLAIN };
        let mut steering = RequestSteering::new(rules, 24, seed);
        let mut prng = Prng::from_seed(seed);
        for (asked, (loads, local)) in (1..).zip(worlds) {
            let local = local % loads.len();
            let chosen = steering.steer(Class::Throughput, local, &loads[..]);
            prop_assert_eq!(chosen, model(&rules, &mut prng, local, &loads));
            if chosen != local {
                let egress = loads[chosen].expect("it has an egress");
                prop_assert!(egress.throughput_bytes <= THRESHOLD);
            }
            let RequestSteeringCounters { stayed, steered, nowhere, preferred } = *steering.counters();
            prop_assert_eq!(stayed + steered + nowhere, asked);
            prop_assert!(preferred <= steered);
            prop_assert_eq!(steering.steer(Class::Latency, local, &loads[..]), local);
        }
    }
}

/// Loads that change on every read, as if other cores were racing; stores the last values returned.
struct Racing {
    prng: RefCell<Prng>,
    said: RefCell<Vec<Option<u64>>>,
    looks: RefCell<u32>,
}

impl Loads for Racing {
    fn cores(&self) -> usize {
        self.said.borrow().len()
    }

    fn throughput_bytes(&self, core: usize) -> Option<u64> {
        let mut prng = self.prng.borrow_mut();
        let wild = prng.next_u64();
        let bytes = match wild % 4 {
            0 => None,
            1 => Some(prng.next_u64()),
            _ => Some(prng.below(2 * THRESHOLD)),
        };
        self.said.borrow_mut()[core] = bytes;
        *self.looks.borrow_mut() += 1;
        bytes
    }

    fn latency_bytes(&self, _core: usize) -> u64 {
        self.prng.borrow_mut().below(2)
    }

    fn waiting_requests(&self, _core: usize) -> u32 {
        u32::try_from(self.prng.borrow_mut().below(17)).unwrap()
    }
}

#[test]
fn whatever_a_race_makes_it_read_it_chooses_what_looked_free() {
    let racing = Racing {
        prng: RefCell::new(Prng::from_seed(11)),
        said: RefCell::new(vec![None; 8]),
        looks: RefCell::new(0),
    };
    let mut steering = RequestSteering::new(REFINED, 8, 5);
    for turn in 0..20_000_usize {
        let local = turn % 8;
        *racing.looks.borrow_mut() = 0;
        let nowhere = steering.counters().nowhere;
        let chosen = steering.steer(Class::Throughput, local, &racing);
        assert!(*racing.looks.borrow() <= 1 + 8, "each is looked at once");
        if steering.counters().nowhere == nowhere {
            let said = racing.said.borrow()[chosen].expect("it said that it has an egress");
            assert!(said <= THRESHOLD);
        } else {
            assert_eq!(chosen, local);
        }
    }
}

/// Loads in KiB, without `Latency` load or waiting requests.
fn loads(kib: &[u64]) -> Vec<Option<EgressLoad>> {
    let of = |kib: &u64| EgressLoad {
        throughput_bytes: kib * 1024,
        ..EgressLoad::default()
    };
    kib.iter().map(|kib| Some(of(kib))).collect()
}

#[test]
fn two_choices_favour_the_less_loaded_as_they_should() {
    // Five candidates with different loads: the k-th least loaded wins 2 (5 - k) / (5 × 4) of the
    // draws, k from 1. The local core is overloaded and not a candidate.
    let loads = loads(&[2000, 50, 10, 40, 20, 30]);
    let mut steering = RequestSteering::new(PLAIN, 6, 42);
    let mut wins = [0_u32; 6];
    for _ in 0..100_000 {
        wins[steering.steer(Class::Throughput, 0, &loads[..])] += 1;
    }
    for (core, percent) in [(0, 0), (2, 40), (4, 30), (5, 20), (3, 10), (1, 0)] {
        assert!(wins[core].abs_diff(percent * 1000) < 1000, "{wins:?}");
    }
}

#[test]
fn below_the_threshold_it_stays_and_at_it_the_local_core_is_one_of_the_candidates() {
    let mut steering = RequestSteering::new(PLAIN, 4, 1);
    assert_eq!(
        steering.steer(Class::Throughput, 1, &loads(&[0, 1023])[..]),
        1
    );
    assert_eq!(
        steering.steer(Class::Throughput, 1, &loads(&[0, 1024])[..]),
        0
    );
    assert_eq!(
        steering.steer(Class::Throughput, 1, &loads(&[1025, 1024])[..]),
        1
    );
    assert_eq!(
        steering.steer(Class::Throughput, 1, &loads(&[1025, 1025])[..]),
        1
    );
    let expected = RequestSteeringCounters {
        stayed: 2,
        steered: 1,
        preferred: 0,
        nowhere: 1,
    };
    assert_eq!(*steering.counters(), expected);
}

#[test]
fn a_nearly_full_caravan_away_from_latency_work_is_preferred() {
    let mut cores = loads(&[2000, 900, 10, 10]);
    let egress = |waiting_requests, latency_bytes, throughput_bytes| {
        Some(EgressLoad {
            throughput_bytes,
            latency_bytes,
            waiting_requests,
        })
    };
    cores[1] = egress(12, 0, 900 * 1024);
    cores[2] = egress(15, 4096, 0);
    let mut steering = RequestSteering::new(REFINED, 4, 1);
    for _ in 0..100 {
        assert_eq!(steering.steer(Class::Throughput, 0, &cores[..]), 1);
    }
    assert_eq!(steering.counters().preferred, 100);
    cores[1] = egress(11, 0, 900 * 1024);
    assert_ne!(
        steering.steer(Class::Throughput, 0, &cores[..]),
        1,
        "two of three, never the worst"
    );
}

#[test]
fn switched_off_or_beyond_the_cores_it_was_made_for_it_stays() {
    let mut steering = RequestSteering::new(PLAIN, 2, 1);
    let room = steering.candidates.capacity();
    let cores = loads(&[5000, 5000, 0]);
    assert_eq!(
        steering.steer(Class::Throughput, 0, &cores[..]),
        0,
        "the third is not looked at"
    );
    steering.reconfigure(RequestSteeringRules {
        enabled: false,
        ..PLAIN
    });
    assert_eq!(
        steering.steer(Class::Throughput, 0, &loads(&[5000, 0])[..]),
        0
    );
    steering.reconfigure(PLAIN);
    assert_eq!(
        steering.steer(Class::Throughput, 0, &loads(&[5000, 0])[..]),
        1
    );
    assert_eq!(steering.candidates.capacity(), room, "nothing is allocated");
}
