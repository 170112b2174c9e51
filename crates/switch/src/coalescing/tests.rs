//! Comparison with a model that stores every completion and keeps no counts.

use super::*;
use proptest::prelude::*;

const HOLD: Nanos = Nanos::from_micros(100);

#[test]
fn few_are_told_of_each_and_many_of_a_quarter() {
    for depth in 1..=4 {
        let mut coalescer = Coalescer::default();
        assert!(coalescer.completed(Time(5), Class::Throughput, depth - 1, HOLD));
    }
    let mut coalescer = Coalescer::default();
    for done in 1..=4 {
        let told = coalescer.completed(Time(5), Class::Throughput, 16 - done, HOLD);
        assert_eq!(told, done == 4);
    }
    assert_eq!(coalescer.notified(), 4);
    assert_eq!(coalescer.until(), Time::NEVER);
}

#[test]
fn what_may_not_wait_takes_what_waits_along() {
    let mut coalescer = Coalescer::default();
    assert!(!coalescer.completed(Time(5), Class::Throughput, 31, HOLD));
    assert!(coalescer.completed(Time(6), Class::Latency, 30, HOLD));
    assert_eq!(coalescer.notified(), 2);
    assert!(coalescer.completed(Time(7), Class::Throughput, 31, Nanos::ZERO));
}

proptest! {
    #[test]
    fn nothing_is_held_that_must_not_be(
        depth in 1_u64..64,
        events in proptest::collection::vec((0_u64..60_000, 0_u8..10, any::<bool>()), 1..200),
    ) {
        let (mut coalescer, mut now) = (Coalescer::default(), Time(1));
        // Arrival times of the held completions.
        let mut held: Vec<Time> = Vec::new();
        let mut under_way = depth;
        for (gap, kind, near) in events {
            now = now + Nanos(gap);
            prop_assert_eq!(
                coalescer.until(),
                held.first().map_or(Time::NEVER, |&first| first + HOLD)
            );
            // The caller checks at the requested time, or a little later.
            if coalescer.is_due(now) {
                prop_assert_eq!(coalescer.notified() as usize, held.len());
                under_way += held.drain(..).len() as u64;
            }
            if under_way == 0 {
                continue;
            }
            let class = if kind == 0 { Class::Latency } else { Class::Throughput };
            let most = if near || !held.is_empty() { HOLD } else { Nanos::ZERO };
            under_way -= 1;
            held.push(now);
            let told = coalescer.completed(now, class, under_way, most);
            let all = held.len() as u64 + under_way;
            let must = class == Class::Latency || under_way == 0 || most == Nanos::ZERO
                || held.len() as u64 * 4 >= all;
            prop_assert_eq!(told, must || now >= held[0] + HOLD);
            if told {
                prop_assert_eq!(coalescer.notified() as usize, held.len());
                under_way += held.drain(..).len() as u64;
            }
        }
    }
}
