//! Comparison with a model that stores every arrival.

use super::*;
use base::Nanos;
use proptest::prelude::*;

const SPARSE: u64 = 384 * 1024;

/// Lets `count` requests arrive, each after `bytes` bulk bytes.
fn arrive(watch: &mut LatencyWatch, now: Time, count: u32, bytes: u64) -> Time {
    let mut now = now;
    for _ in 0..count {
        now = now + Nanos::from_micros(50);
        watch.sent(bytes / 2);
        watch.sent(bytes - bytes / 2);
        watch.arrived(now);
    }
    now
}

#[test]
fn what_leaves_between_two_requests_says_how_near_they_are() {
    let mut watch = LatencyWatch::new(SPARSE);
    assert_eq!(watch.latency_activity(Time(5)), LatencyActivity::Absent);
    let now = arrive(&mut watch, Time(5), 100, 64 * 1024);
    assert_eq!(watch.latency_activity(now), LatencyActivity::Dense);
    assert_eq!(watch.sparse_arrivals(), 0);
    let now = arrive(&mut watch, now, 100, 700_000);
    assert_eq!(watch.latency_activity(now), LatencyActivity::Sparse);
    // All but the first five, which it took to reach the average.
    assert_eq!(watch.sparse_arrivals(), 95);
    let last = now + LOAD_RESET;
    assert_eq!(
        watch.latency_activity(Time(last.0 - 1)),
        LatencyActivity::Sparse
    );
    assert_eq!(watch.latency_activity(last), LatencyActivity::Absent);
    let mut watch = LatencyWatch::new(SPARSE);
    let now = arrive(&mut watch, now, 300, SPARSE);
    assert_eq!(
        watch.latency_activity(now),
        LatencyActivity::Sparse,
        "at the bound"
    );
    watch.reconfigure(SPARSE + 1);
    assert_eq!(watch.latency_activity(now), LatencyActivity::Dense);
}

#[test]
fn without_bulk_no_request_is_sparse() {
    let mut watch = LatencyWatch::new(SPARSE);
    watch.present(Time(5));
    assert_eq!(watch.latency_activity(Time(6)), LatencyActivity::Dense);
    let now = arrive(&mut watch, Time(6), 100, 0);
    assert_eq!(watch.latency_activity(now), LatencyActivity::Dense);
}

#[test]
fn a_pause_is_soon_forgotten() {
    for pause in [SPARSE, 1 << 40, u64::MAX] {
        let mut watch = LatencyWatch::new(SPARSE);
        let now = arrive(&mut watch, Time(5), 40, 2 * SPARSE);
        let now = arrive(&mut watch, now, 1, pause);
        let now = arrive(&mut watch, now, 24, 64 * 1024);
        assert_eq!(
            watch.latency_activity(now),
            LatencyActivity::Dense,
            "{pause}"
        );
    }
}

proptest! {
    #[test]
    fn nothing_that_was_there_is_far_and_no_pace_is_missed(
        gaps in proptest::collection::vec((0_u64..3_000_000_000, any::<u64>(), any::<bool>()), 0..60),
        between in 1_u64..4 * SPARSE,
        after in 0_u64..2_000_000_000,
    ) {
        let (mut watch, mut now) = (LatencyWatch::new(SPARSE), Time(0));
        let mut there: Vec<Time> = Vec::new();
        for (gap, bytes, arrives) in gaps {
            now = now + Nanos(gap);
            watch.sent(bytes);
            let lately = there.iter().any(|&at| now.since(at) < LOAD_RESET);
            prop_assert_eq!(watch.is_active(now), lately);
            prop_assert_eq!(watch.latency_activity(now).is_active(), lately);
            if arrives { watch.arrived(now) } else { watch.present(now) }
            there.push(now);
        }
        // A steady pace is detected after a while, whatever came before.
        now = arrive(&mut watch, now, 64, between);
        let expected = if between < SPARSE { LatencyActivity::Dense } else { LatencyActivity::Sparse };
        // The remainder, after 64 steps of 1/8, of the largest earlier average.
        prop_assume!(between.abs_diff(SPARSE) > SPARSE / 1_000);
        prop_assert_eq!(watch.latency_activity(now), expected);
        let later = now + Nanos(after);
        prop_assert_eq!(watch.is_active(later), after < LOAD_RESET.0);
    }
}
