//! Changes of tenants: refusal, live change, removal, replacement.

use super::*;
use crate::admission::tests::device_a_parts;
use crate::cost::{PricedOperation, units};
use crate::slo::{Percentile, Slo, Weight};
use crate::token_scheduler::{Refused, TokenScheduler};
use crate::tokens::TokenRate;
use base::{Nanos, Time};

fn tenants() -> Tenants {
    let (model, curve) = device_a_parts();
    let rules = TokenPoolRules {
        // The number of requests is then the number of reserved tokens.
        advance: Nanos::ZERO,
        ..TokenPoolRules::default()
    };
    Tenants::new(rules, model, curve)
}

fn critical(iops: u64) -> Declaration {
    Declaration::LatencyCritical(Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_micros(500),
        iops,
        read_permille: 1000,
        request_bytes: 4096,
    })
}

fn best_effort(weight: u32) -> Declaration {
    Declaration::BestEffort(Weight::new(weight).unwrap())
}

/// Requests released in a second for a tenant with unlimited demand, together with such a
/// best-effort tenant.
fn pace(tenants: &Tenants, scheduler: &mut TokenScheduler<u32>, id: u32, start: &mut Time) -> u64 {
    let mine = scheduler.attach(tenants.account(TenantId(id)).unwrap());
    let other = scheduler.attach(tenants.account(TenantId(99)).unwrap());
    let mut released = 0;
    for _ in 0..50_000 {
        *start = *start + Nanos::from_micros(20);
        for key in [mine, other] {
            while scheduler.tally(key).unwrap().waiting < 64 {
                let item = u32::from(key == mine);
                scheduler
                    .enqueue(key, PricedOperation::Write, units(4096), item)
                    .unwrap();
            }
        }
        scheduler.round(*start, &mut |item, _| released += u64::from(item));
    }
    for key in [mine, other] {
        scheduler.detach(key, &mut |_| {});
    }
    released
}

/// A refused tenant keeps no state by which its second connection would be accepted.
#[test]
fn a_refused_tenants_second_connection_is_refused_too() {
    let mut tenants = tenants();
    for _ in 0..3 {
        tenants.set(TenantId(1), critical(10_000_000)).unwrap_err();
        assert!(tenants.account(TenantId(1)).is_none());
    }
    tenants.set(TenantId(1), critical(1_000)).unwrap();
    assert!(tenants.account(TenantId(1)).is_some());
    // A refused change keeps the old SLO.
    tenants.set(TenantId(1), critical(10_000_000)).unwrap_err();
    let account = tenants.account(TenantId(1)).unwrap();
    assert_eq!(
        account.contract(),
        Contract::LatencyCritical(TokenRate(1_000))
    );
}

/// Live changes reach the rate that threads use.
#[test]
fn every_live_change_is_in_force() {
    let mut tenants = tenants();
    tenants.set(TenantId(99), best_effort(100)).unwrap();
    let mut scheduler = TokenScheduler::new(tenants.pool().clone(), 1024).unwrap();
    let mut now = Time(1);
    for iops in [100_000, 200_000, 50_000, 100_000] {
        tenants.set(TenantId(1), critical(iops)).unwrap();
        // Writes, which cost ten times the reserved cost per request.
        let writes = pace(&tenants, &mut scheduler, 1, &mut now);
        assert!(
            writes.abs_diff(iops / 10) <= 20,
            "{writes} writes for {iops} reads"
        );
    }
    tenants.set(TenantId(1), best_effort(300)).unwrap();
    let writes = pace(&tenants, &mut scheduler, 1, &mut now);
    assert!(writes.abs_diff(57_000 * 3 / 4) <= 100, "{writes} writes");
    tenants.set(TenantId(1), best_effort(100)).unwrap();
    let writes = pace(&tenants, &mut scheduler, 1, &mut now);
    assert!(writes.abs_diff(57_000 / 2) <= 100, "{writes} writes");
    tenants.set(TenantId(1), critical(20_000)).unwrap();
    let writes = pace(&tenants, &mut scheduler, 1, &mut now);
    assert!(writes.abs_diff(2_000) <= 20, "{writes} writes");
}

/// The share of best effort must not underflow.
#[test]
fn promises_above_the_rate_never_underflow_the_best_effort_share() {
    let mut tenants = tenants();
    tenants.set(TenantId(1), critical(400_000)).unwrap();
    tenants.set(TenantId(99), best_effort(100)).unwrap();
    let (model, _) = device_a_parts();
    let latency = [Nanos::from_micros(400); Percentile::COUNT];
    let point = crate::curve::Point {
        rate: TokenRate(100_000),
        latency,
    };
    let plan = tenants.recalibrate(model, Curve::new(vec![point]).unwrap());
    assert!(plan.is_overcommitted());
    let mut scheduler = TokenScheduler::new(tenants.pool().clone(), 1024).unwrap();
    let mut now = Time(1);
    let best_effort_too = pace(&tenants, &mut scheduler, 99, &mut now);
    // Both attachments belong to the same tenant: its total in a second is its rate.
    assert!(best_effort_too <= 10_010, "{best_effort_too} writes");
    let writes = pace(&tenants, &mut scheduler, 1, &mut now);
    assert!(
        writes.abs_diff(40_000) <= 20,
        "{writes} writes of the promise"
    );
    let tally = scheduler.totals();
    assert!(tally.forgiven > Tokens::ZERO, "{tally:?}");
}

/// A removed tenant has no effect through its remaining connections, and its name can be given to a
/// new tenant without inheriting state.
#[test]
fn a_removed_tenant_is_gone_and_its_name_is_free() {
    let mut tenants = tenants();
    tenants.set(TenantId(1), critical(100_000)).unwrap();
    let mut scheduler = TokenScheduler::new(tenants.pool().clone(), 16).unwrap();
    let old = scheduler.attach(tenants.account(TenantId(1)).unwrap());
    scheduler.enqueue(old, PricedOperation::Read, 1, 1).unwrap();
    assert!(tenants.remove(TenantId(1)));
    assert!(!tenants.remove(TenantId(1)));
    assert!(tenants.account(TenantId(1)).is_none());
    assert_eq!(
        scheduler.enqueue(old, PricedOperation::Read, 1, 2),
        Err(Refused::Closed(2))
    );
    scheduler.round(Time(1_000_000), &mut |item, _| {
        panic!("{item} was released")
    });
    assert_eq!(tenants.admission().plan().reserved, TokenRate(0));
    tenants.set(TenantId(1), best_effort(1)).unwrap();
    let new = scheduler.attach(tenants.account(TenantId(1)).unwrap());
    assert_ne!(old, new);
    scheduler.enqueue(new, PricedOperation::Read, 1, 3).unwrap();
    let mut left = Vec::new();
    scheduler.detach(old, &mut |item| left.push(item));
    assert_eq!(left, [1]);
    let mut released = Vec::new();
    for turn in 2..9 {
        scheduler.round(Time(turn * 1_000_000), &mut |item, _| released.push(item));
    }
    assert_eq!(released, [3]);
}

/// Applied one after the other, either order of these two changes would break an SLO.
#[test]
fn promises_are_exchanged_at_once_or_not_at_all() {
    let mut tenants = tenants();
    let both = |first, second| {
        [
            (TenantId(1), critical(first)),
            (TenantId(2), critical(second)),
        ]
        .into_iter()
        .chain([(TenantId(3), best_effort(7))])
        .collect::<BTreeMap<_, _>>()
    };
    tenants.replace(&both(300_000, 100_000)).unwrap();
    let plan = tenants.replace(&both(100_000, 300_000)).unwrap();
    assert_eq!(plan.reserved, TokenRate(400_000));
    let account = Arc::clone(tenants.account(TenantId(2)).unwrap());
    let (culprit, refusal) = tenants.replace(&both(100_000, 400_000)).unwrap_err();
    assert_eq!(culprit, TenantId(2));
    assert!(matches!(refusal, Refusal::NotEnough { .. }), "{refusal}");
    let before = Contract::LatencyCritical(TokenRate(300_000));
    assert_eq!(account.contract(), before);
    // A tenant that stays keeps its account; a removed one has none.
    let one: BTreeMap<_, _> = both(1, 50_000).into_iter().skip(1).take(1).collect();
    tenants.replace(&one).unwrap();
    assert!(Arc::ptr_eq(&account, tenants.account(TenantId(2)).unwrap()));
    assert!(tenants.account(TenantId(1)).is_none());
    assert_eq!(tenants.admission().tenants().len(), 1);
}
