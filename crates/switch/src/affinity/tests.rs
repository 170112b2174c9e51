use super::*;
use crate::application_steering::{
    ApplicationSteering, ApplicationSteeringRules, Hysteresis, SteeredThread,
};
use crate::cpuset::CoreSet;
use crate::limits::{APPLICATION_STEERING_PERIOD, LATENCY_LOAD_MAX_BYTES};
use base::Time;
use base::units::CoreId;
use proptest::prelude::*;

fn load(latency: u64, throughput: u64) -> PerClass<u64> {
    PerClass::of([latency, throughput])
}

#[test]
fn classes_contend_wherever_they_are() {
    assert!(!contend(&[]));
    assert!(!contend(&[load(0, 7), load(0, 7)]));
    assert!(!contend(&[load(7, 0), load(0, 0)]));
    assert!(contend(&[load(7, 0), load(0, 7)]));
    assert!(contend(&[load(7, 7)]));
}

#[test]
fn two_queues_on_each_other_s_arrival_cores_both_move() {
    let (latency, throughput) = (load(4096, 0), load(0, 1 << 20));
    assert!(moves_to_arrival_core(
        Class::Latency,
        0,
        &throughput,
        &latency
    ));
    // The order does not matter: when one queue has arrived, the other one moves, too.
    let both = load(4096, 1 << 20);
    assert!(moves_to_arrival_core(
        Class::Throughput,
        0,
        &load(0, 0),
        &both
    ));
}

#[test]
fn who_gathers_stays_in_company() {
    let here = load(8192, 0);
    assert!(!moves_to_arrival_core(
        Class::Latency,
        1,
        &load(0, 1 << 20),
        &here
    ));
}

#[test]
fn who_spreads_stays_away_from_what_it_avoids() {
    let here = load(4096, 1 << 20);
    assert!(!moves_to_arrival_core(
        Class::Throughput,
        0,
        &load(4096, 0),
        &here
    ));
    assert!(!moves_to_arrival_core(
        Class::Throughput,
        0,
        &load(512, 0),
        &here
    ));
    assert!(moves_to_arrival_core(
        Class::Throughput,
        0,
        &load(511, 0),
        &here
    ));
    let nothing = load(0, 1 << 20);
    assert!(!moves_to_arrival_core(
        Class::Throughput,
        0,
        &load(0, 0),
        &nothing
    ));
}

proptest! {
    /// Application steering does not move a spreading queue back from its arrival core.
    #[test]
    fn steering_leaves_what_moved_to_its_arrival_core(
        arrival in (0u64..1 << 20, 0u64..1 << 24),
        here in (1u64..1 << 20, 0u64..1 << 24),
        bytes in 1u64..1 << 22,
        paper: bool,
    ) {
        let gathers = 8 * arrival.0 + here.0;
        let (arrival, here) = (load(arrival.0, arrival.1), load(gathers, here.1 + bytes));
        prop_assert!(moves_to_arrival_core(Class::Throughput, 0, &arrival, &here));
        let loads = [load(arrival[Class::Latency], arrival[Class::Throughput] + bytes),
            load(here[Class::Latency], here[Class::Throughput] - bytes)];
        let mut steering = ApplicationSteering::new(ApplicationSteeringRules {
            enabled: true,
            period: APPLICATION_STEERING_PERIOD,
            latency_load_max_bytes: LATENCY_LOAD_MAX_BYTES,
            hysteresis: if paper { Hysteresis::Paper } else { Hysteresis::Settled },
        });
        let thread = SteeredThread {
            id: 1,
            class: Class::Throughput,
            core: CoreId(0),
            allowed: CoreSet::first(2),
            pinned_by_user: false,
            load_bytes: bytes,
        };
        let mut now = Time(1);
        for _ in 0..4 {
            prop_assert!(steering.step(now, &loads, &[thread]).is_empty());
            now = now + APPLICATION_STEERING_PERIOD;
        }
    }
}
