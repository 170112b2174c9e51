use super::*;
use proptest::prelude::*;

fn latency(micros: u64) -> [Nanos; Percentile::COUNT] {
    [micros / 2, micros, micros * 2, micros * 3].map(Nanos::from_micros)
}

fn curve(points: &[(u64, u64)]) -> Curve {
    let points = points.iter().map(|&(rate, micros)| Point {
        rate: TokenRate(rate),
        latency: latency(micros),
    });
    Curve::new(points.collect()).expect("a curve")
}

fn seen(rate: u64, micros: u64) -> Observation {
    Observation {
        rate: TokenRate(rate),
        read_permille: 900,
        reads: LIVE_READS_MIN,
        latency: latency(micros),
    }
}

fn p95(curve: &Curve, rate: u64) -> Option<u64> {
    let latency = curve.latency_at(Percentile::P95, TokenRate(rate));
    latency.map(|latency| latency.0 / 1000)
}

fn old() -> Curve {
    curve(&[(1_000, 100), (10_000, 200), (20_000, 400), (30_000, 1_600)])
}

#[test]
fn only_what_was_seen_is_replaced() {
    let slower = [seen(9_000, 300), seen(12_000, 320), seen(15_000, 500)];
    let refit = refit(&old(), &slower).expect("a newer curve");
    assert_eq!(refit.seen, (TokenRate(9_000), TokenRate(15_000)));
    assert_eq!((refit.used, refit.spread_permille), (3, 0));
    assert_eq!(p95(&refit.curve, 1_000), Some(100), "nobody looked there");
    assert_eq!(p95(&refit.curve, 9_000), Some(300));
    assert_eq!(p95(&refit.curve, 15_000), Some(500));
    // It was 300 there: now no higher load is faster than the observed load.
    assert_eq!(p95(&refit.curve, 15_001), Some(500));
    assert_eq!(p95(&refit.curve, 30_000), Some(1_600));
    let (before, now) = refit.highest;
    let before = before.expect("on the old curve");
    assert_eq!((before.0, now.0), (300_000, 500_000));
}

#[test]
fn a_faster_device_is_faster_up_to_what_was_seen_and_no_further() {
    let faster = [seen(5_000, 50), seen(9_000, 60), seen(15_000, 70)];
    let refit = refit(&old(), &faster).expect("a newer curve");
    assert_eq!(p95(&refit.curve, 1_000), Some(50), "less load is not later");
    assert_eq!(p95(&refit.curve, 15_000), Some(70));
    let next = p95(&refit.curve, 15_001).expect("on the curve");
    assert!((300..=301).contains(&next), "{next}");
    assert_eq!(refit.curve.capacity(), TokenRate(30_000));
}

/// On a device that reads faster while nothing is written, that would break the SLOs of a mix.
#[test]
fn reads_alone_never_make_a_curve_earlier() {
    let alone = |micros: [u64; 3]| {
        [5_000, 9_000, 15_000]
            .into_iter()
            .zip(micros)
            .map(|(rate, micros)| Observation {
                read_permille: LIVE_MIXED_PERMILLE_MAX + 1,
                ..seen(rate, micros)
            })
            .collect::<Vec<_>>()
    };
    let newer = refit(&old(), &alone([50, 60, 70])).expect("a newer curve");
    for rate in (1_000..=30_000).step_by(500) {
        let (before, now) = (p95(&old(), rate), p95(&newer.curve, rate));
        assert!(now >= before, "{now:?} at {rate}, and it was {before:?}");
    }
    let newer = refit(&old(), &alone([150, 200, 700])).expect("a newer curve");
    assert_eq!(p95(&newer.curve, 15_000), Some(700), "but later");
    // Together with a mix they do not contradict it.
    let mixed = [seen(5_100, 140), seen(9_100, 190), seen(15_100, 320)];
    let all = [&alone([50, 60, 70])[..], &mixed].concat();
    assert_eq!(
        refit(&old(), &all).expect("a newer curve").spread_permille,
        0
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    // The device changed between two observations of the same loads.
    let both = [100, 110, 120].map(|micros| seen(1_000 + micros, micros));
    let again = [190, 200, 210].map(|micros| seen(911 + micros, micros));
    let error = refit(&old(), &[both, again].concat()).unwrap_err();
    let LiveError::Noise { spread } = error else {
        panic!("{error}");
    };
    assert!(spread > FIT_SPREAD_PERMILLE_MAX, "{error}");
    assert!(error.to_string().contains("increase --seconds"), "{error}");
    // A small deviation is no contradiction, and the higher latency is used.
    let little = [seen(5_000, 100), seen(6_000, 110), seen(7_000, 105)];
    let refit = refit(&old(), &little).expect("a newer curve");
    assert!(refit.spread_permille > 0);
    assert_eq!(p95(&refit.curve, 7_000), Some(110));
}

#[test]
fn too_little_is_refused() {
    let mut few = [seen(5_000, 100), seen(6_000, 110), seen(7_000, 120)];
    few[1].reads -= 1;
    assert_eq!(
        refit(&old(), &few),
        Err(LiveError::TooFew { enough: 2, all: 3 })
    );
    assert_eq!(
        refit(&old(), &[]),
        Err(LiveError::TooFew { enough: 0, all: 0 })
    );
}

#[test]
fn a_curve_of_very_many_points_stays_within_its_limit() {
    let most = u64::try_from(CURVE_POINTS_MAX).expect("a small number");
    let points: Vec<_> = (1..=most).map(|n| (n * 100, 100 + n)).collect();
    let old = curve(&points);
    let all = [seen(150, 300), seen(250, 310), seen(350, 320)];
    let refit = refit(&old, &all).expect("a newer curve");
    assert!(refit.curve.points().len() <= CURVE_POINTS_MAX);
    assert_eq!(refit.curve.capacity(), old.capacity());
    for n in 4..most {
        let (before, now) = (p95(&old, n * 100), p95(&refit.curve, n * 100));
        assert!(now >= before, "{now:?} at {n}, and it was {before:?}");
    }
}

proptest! {
    /// No latency improves at a rate that was not observed.
    #[test]
    fn no_rate_that_was_not_seen_is_promised_sooner(
        steps in prop::collection::vec((1u64..5_000, 1u64..500), 1..20),
        observed in prop::collection::vec((1u64..60_000, 50u64..5_000), 3..12),
        rate in 1u64..60_000,
    ) {
        let mut sum = (0, 10);
        let points: Vec<_> = steps.iter().map(|&(rate, micros)| {
            sum = (sum.0 + rate, sum.1 + micros);
            sum
        }).collect();
        let old = curve(&points);
        let observed: Vec<_> = observed.iter().map(|&(rate, micros)| seen(rate, micros)).collect();
        let Ok(refit) = refit(&old, &observed) else { return Ok(()); };
        let at = TokenRate(rate);
        let (Some(now), Some(before)) = (
            refit.curve.latency_at(Percentile::P95, at),
            old.latency_at(Percentile::P95, at),
        ) else { return Ok(()); };
        if at > refit.seen.1 {
            prop_assert!(now >= before, "{now} at {rate}, and it was {before}");
        }
        // A read observed at this rate or below was not slower than the curve.
        for one in observed.iter().filter(|one| one.rate <= at) {
            prop_assert!(now >= one.latency[Percentile::P95 as usize]);
        }
    }
}
