//! The paper's scenario, and refusals.

use super::*;
use crate::cost::Price;
use crate::curve::{LOOK_UPS, Point};
use crate::limits::{LATENCY_RESERVE_PERMILLE, PRICE_MILLI_MAX};
use crate::slo::Weight;
use proptest::prelude::*;

/// Device A: at 420 K tokens per second it meets an SLO of 500 µs at p95, of which 450 µs are the
/// device's.
pub(crate) fn device_a_parts() -> (CostModel, Curve) {
    let point = |rate, p95: u64| {
        let of = |tenths: u64| Nanos::from_micros(p95 * tenths / 10);
        let latency = [of(5), of(10), of(15), of(30)];
        Point {
            rate: TokenRate(rate),
            latency,
        }
    };
    let points = vec![
        point(50_000, 90),
        point(300_000, 270),
        point(420_000, 450),
        point(500_000, 900),
        point(570_000, 1_800),
    ];
    let model = CostModel::new(Price::milli(10_000).unwrap(), Price::milli(500).unwrap());
    (model, Curve::new(points).unwrap())
}

fn device_a() -> Admission {
    let (model, curve) = device_a_parts();
    Admission::new(model, curve, LATENCY_RESERVE_PERMILLE)
}

fn slo(iops: u64, read_permille: u16, micros: u64) -> Slo {
    Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_micros(micros),
        iops,
        read_permille,
        request_bytes: 4096,
    }
}

fn critical(iops: u64, read_permille: u16, micros: u64) -> Declaration {
    Declaration::LatencyCritical(slo(iops, read_permille, micros))
}

/// The paper's scenario 1: A and B reserve 316 K of 420 K tokens.
#[test]
fn scenario_one_is_admitted_and_leaves_a_quarter() {
    let mut admission = device_a();
    assert_eq!(admission.plan().rate, TokenRate(570_000));
    admission
        .admit(TenantId(1), critical(120_000, 1000, 500))
        .unwrap();
    let plan = admission
        .admit(TenantId(2), critical(70_000, 800, 500))
        .unwrap();
    assert_eq!(plan.rate, TokenRate(420_000));
    assert_eq!(plan.reserved, TokenRate(316_000));
    assert_eq!(plan.unreserved(), TokenRate(104_000));
    assert_eq!(plan.round, Nanos::from_micros(25));
    let best_effort = Declaration::BestEffort(Weight::default());
    assert_eq!(admission.admit(TenantId(3), best_effort), Ok(plan));
}

#[test]
fn a_refusal_says_what_would_be_admitted() {
    let mut admission = device_a();
    admission
        .admit(TenantId(1), critical(300_000, 1000, 500))
        .unwrap();
    let refusal = admission
        .admit(TenantId(2), critical(200_000, 1000, 1_000))
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "it needs 200000 tokens/s; the device meets p95 500µs up to 420000 tokens/s, of which \
         300000 tokens/s are reserved by other tenants; 120000 requests/s would be admitted"
    );
    let refusal = admission
        .admit(TenantId(2), critical(100_000, 1000, 200))
        .unwrap_err();
    let Refusal::NotEnough { offer, rate, .. } = refusal else {
        panic!("{refusal}");
    };
    assert_eq!(
        rate,
        TokenRate(175_000),
        "a stricter promise costs the others"
    );
    assert_eq!(
        offer,
        Offer {
            iops: None,
            latency: Some(Nanos(466_667))
        }
    );
    admission
        .admit(TenantId(2), critical(100_000, 1000, 467))
        .unwrap();
    let refusal = admission
        .admit(TenantId(3), critical(1_000, 1000, 99))
        .unwrap_err();
    assert!(matches!(refusal, Refusal::TooStrict { .. }), "{refusal}");
    let refusal = admission
        .admit(TenantId(3), critical(0, 1000, 500))
        .unwrap_err();
    assert_eq!(refusal, Refusal::Slo(SloError::NoRate));
    assert_eq!(admission.tenants().len(), 2);
}

#[test]
fn removal_gives_back_and_a_change_is_judged_without_itself() {
    let mut admission = device_a();
    admission
        .admit(TenantId(1), critical(400_000, 1000, 500))
        .unwrap();
    let too_much = critical(100_000, 1000, 2_000);
    admission.admit(TenantId(2), too_much).unwrap_err();
    admission
        .admit(TenantId(1), critical(410_000, 1000, 500))
        .unwrap();
    admission
        .admit(TenantId(1), critical(100_000, 1000, 500))
        .unwrap();
    admission
        .admit(TenantId(2), critical(100_000, 1000, 2_000))
        .unwrap();
    assert!(admission.remove(TenantId(1)));
    assert!(!admission.remove(TenantId(1)));
    assert_eq!(
        admission.plan().rate,
        TokenRate(570_000),
        "the strictest is gone"
    );
    assert_eq!(admission.plan().reserved, TokenRate(100_000));
}

/// A slower device: SLOs stay, and the plan shows that they cannot be met.
#[test]
fn a_worse_device_is_overcommitted_and_leaves_nothing() {
    let mut admission = device_a();
    admission
        .admit(TenantId(1), critical(400_000, 1000, 500))
        .unwrap();
    let latency = [Nanos::from_micros(600); Percentile::COUNT];
    let curve = Curve::new(vec![Point {
        rate: TokenRate(100_000),
        latency,
    }])
    .unwrap();
    let plan = admission.recalibrate(*admission.model(), curve);
    assert!(plan.is_overcommitted());
    assert_eq!(plan.unreserved(), TokenRate(0), "not a huge number");
}

#[test]
fn whose_promises_a_worse_device_cannot_keep_is_named() {
    let mut admission = device_a();
    let (first, second) = (critical(100_000, 1000, 500), critical(60_000, 1000, 500));
    admission.admit(TenantId(1), first).unwrap();
    admission.admit(TenantId(2), second).unwrap();
    admission
        .admit(TenantId(3), Declaration::default())
        .unwrap();
    assert_eq!(admission.unkept(), []);
    let point = Point {
        rate: TokenRate(120_000),
        latency: [Nanos::from_micros(100); Percentile::COUNT],
    };
    let curve = Curve::new(vec![point]).unwrap();
    let price = CostModel::new(Price::READ, Price::READ);
    let plan = admission.recalibrate(price, curve);
    assert!(plan.is_overcommitted());
    let unkept = admission.unkept();
    let [(tenant, refusal)] = unkept.as_slice() else {
        panic!("{unkept:?}");
    };
    assert_eq!(*tenant, TenantId(2), "the first one still fits");
    let said = refusal.to_string();
    assert!(said.contains("20000 requests/s"), "{said}");
    assert_eq!(admission.tenants().len(), 3, "and all stay");
}

/// A reservation beyond the maximum rate must not become zero, which would stop the tenant.
#[test]
fn dearer_prices_never_leave_a_promise_without_tokens() {
    let (_, curve) = device_a_parts();
    let priced = |milli| CostModel::new(Price::milli(milli).unwrap(), Price::READ);
    let mut admission = Admission::new(priced(1), curve.clone(), LATENCY_RESERVE_PERMILLE);
    let writes = critical(300_000_000, 0, 500);
    admission.admit(TenantId(1), writes).unwrap();
    assert_eq!(admission.reservation(&writes), TokenRate(300_000));
    let plan = admission.recalibrate(priced(PRICE_MILLI_MAX), curve);
    assert!(plan.is_overcommitted());
    assert_eq!(admission.reservation(&writes), TokenRate(RATE_MAX));
    assert_eq!(admission.unkept().len(), 1);
}

/// Each tenant is judged with the sum of its predecessors, not with each of them.
#[test]
fn the_time_to_judge_all_grows_with_their_number() {
    const TENANTS: u32 = 1_000;
    let look_ups = |judge: &mut dyn FnMut()| {
        let before = LOOK_UPS.get();
        judge();
        LOOK_UPS.get() - before
    };
    let all: BTreeMap<_, _> = (0..TENANTS)
        .map(|id| (TenantId(id), critical(400, 1000, 500)))
        .collect();
    let mut admission = device_a();
    admission.replace(&all).unwrap();
    let mut more = all.clone();
    more.insert(TenantId(TENANTS), critical(30_000, 1000, 500));
    let refused = look_ups(&mut || {
        device_a().replace(&more).unwrap_err();
    });
    assert!(refused <= 5 * more.len(), "{refused} look-ups");
    let (model, _) = device_a_parts();
    let latency = [Nanos::from_micros(100); Percentile::COUNT];
    let rate = TokenRate(200_000);
    admission.recalibrate(model, Curve::new(vec![Point { rate, latency }]).unwrap());
    let judged = look_ups(&mut || assert_eq!(admission.unkept().len(), 500));
    assert!(judged <= 2 * all.len(), "{judged} look-ups");
}

proptest! {
    /// No SLO is broken by a later one in any sequence of changes, and every offer is admitted.
    #[test]
    fn promises_are_kept_and_offers_are_good(
        events in prop::collection::vec(
            (0u32..6, 1u64..300_000, 0u16..=1000, 50u64..3_000, prop::bool::weighted(0.2)),
            1..40,
        ),
    ) {
        let mut admission = device_a();
        for (id, iops, reads, micros, remove) in events {
            let id = TenantId(id);
            if remove {
                admission.remove(id);
                continue;
            }
            let asked = slo(iops, reads, micros);
            let before = admission.plan();
            match admission.admit(id, Declaration::LatencyCritical(asked)) {
                Ok(plan) => prop_assert_eq!(plan, admission.plan()),
                Err(Refusal::TooStrict { offer, .. } | Refusal::NotEnough { offer, .. }) => {
                    prop_assert_eq!(before, admission.plan());
                    if let Some(iops) = offer.iops {
                        let less = Declaration::LatencyCritical(Slo { iops, ..asked });
                        prop_assert!(admission.judge(id, &less).is_ok(), "{:?}", less);
                    }
                    if let Some(latency) = offer.latency {
                        let later = Declaration::LatencyCritical(Slo { latency, ..asked });
                        prop_assert!(admission.judge(id, &later).is_ok(), "{:?}", later);
                    }
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
            let plan = admission.plan();
            prop_assert!(!plan.is_overcommitted());
            for slo in admission.slos(None) {
                let kept = admission.curve().latency_at(slo.percentile, plan.rate).unwrap();
                prop_assert!(kept <= slo.latency);
            }
        }
    }
}

#[test]
fn without_a_reserve_the_device_has_all_of_the_promised_latency() {
    let (model, curve) = device_a_parts();
    let slo = Declaration::LatencyCritical(Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_micros(450),
        iops: 100_000,
        read_permille: 1000,
        request_bytes: 4096,
    });
    let rate = |reserve| {
        let mut admission = Admission::new(model, curve.clone(), reserve);
        admission.admit(TenantId(1), slo).unwrap().rate
    };
    assert_eq!(rate(0), TokenRate(420_000));
    assert!(rate(LATENCY_RESERVE_PERMILLE) < TokenRate(420_000));
}
