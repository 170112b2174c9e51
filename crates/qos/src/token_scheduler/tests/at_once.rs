//! A tenant that pays at once gets no more than one that waits for a round.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whether it pays at once or waits, a latency-critical tenant owes at most NEG_LIMIT and one
    /// request.
    #[test]
    fn paying_at_once_honours_the_debt_limit(
        rate in 1_000u64..300_000,
        steps in prop::collection::vec((0u32..40, 0u64..100_000, any::<bool>()), 1..300),
    ) {
        let mut world = World::new(1, &[critical(rate), best_effort(1)]);
        world.enqueue(0, 1, PricedOperation::Write, u32::MAX);
        world.round(0);
        let start = world.now;
        for (requests, nanos, write) in steps {
            let operation = if write { PricedOperation::Write } else { PricedOperation::Read };
            for _ in 0..requests {
                if !world.pay_at_once(0, 0, operation, 1) {
                    world.enqueue(0, 0, operation, 1);
                }
                let balance = world.accounts[0].balance();
                prop_assert!(balance > Tokens::whole(-NEG_LIMIT_TOKENS) - WRITE, "{}", balance);
            }
            world.pass(Nanos(nanos));
            world.round(0);
        }
        let most = TokenRate(rate).over(world.now.since(start));
        prop_assert!(world.spent_by(0) <= most + Tokens::whole(NEG_LIMIT_TOKENS) + WRITE);
    }
}

/// Of two tenants with unlimited demand, one pays at once whenever it can: neither gains by it.
#[test]
fn who_pays_at_once_gets_no_more_than_who_waits() {
    let mut world = World::new(1, &[best_effort(100), best_effort(100)]);
    let mut at_once = 0;
    for _ in 0..20_000 {
        for _ in 0..64 {
            if !world.pay_at_once(0, 0, PricedOperation::Read, 1) {
                world.fill(0, 0, PricedOperation::Read, 4);
                break;
            }
            at_once += 1;
        }
        world.fill(0, 1, PricedOperation::Read, 16);
        world.pass(ROUND);
        world.round(0);
    }
    assert!(at_once > 10_000, "{at_once}");
    let shares = [0, 1].map(|tenant| world.spent_by(tenant).0 as f64);
    let quotient = shares[0] / shares[1];
    assert!((0.95..1.05).contains(&quotient), "{quotient}");
    let all = RATE.over(Nanos(ROUND.0 * 20_000)).0 as f64;
    assert!(
        shares.iter().sum::<f64>() > 0.97 * all,
        "{shares:?} of {all}"
    );
}

/// The share of a thread with an empty queue must not be redistributed by a close before the thread
/// has claimed it: tenants with more frequent rounds would get more.
#[test]
fn who_waits_on_one_thread_gets_no_more_than_who_pays_at_once_on_another() {
    for often in 1..=4 {
        let mut world = World::new(2, &[best_effort(100), best_effort(100)]);
        for round in 0..20_000 {
            world.fill(0, 0, PricedOperation::Read, 16);
            for _ in 0..often {
                world.pass(Nanos(ROUND.0 / often));
                world.round(0);
            }
            world.round(1);
            // Two thirds of a round's tokens, and less at first: it hardly ever waits.
            let wanted = 7.min(1 + round / 100);
            if !(0..wanted).all(|_| world.pay_at_once(1, 1, PricedOperation::Read, 1)) {
                world.fill(1, 1, PricedOperation::Read, 1);
            }
        }
        let shares = [0, 1].map(|tenant| world.spent_by(tenant).0 as f64);
        let quotient = shares[1] / shares[0];
        assert!((0.95..1.05).contains(&quotient), "{often}: {quotient}");
    }
}

#[test]
fn who_stops_paying_at_once_keeps_nothing() {
    let mut world = World::new(1, &[best_effort(100)]);
    let mut at_once = 0;
    for _ in 0..1_000 {
        for _ in 0..4 {
            if world.pay_at_once(0, 0, PricedOperation::Read, 1) {
                at_once += 1;
            } else {
                world.enqueue(0, 0, PricedOperation::Read, 1);
            }
        }
        world.pass(ROUND);
        world.round(0);
        let claimed = world.threads[0].entries[0].claimed;
        assert!(claimed <= Tokens::whole(8), "{claimed}");
    }
    assert!(at_once > 3_000, "{at_once}");
    // It is visited once more with an empty queue, and then no longer.
    assert!(world.threads[0].deadline() <= world.now + ROUND);
    for _ in 0..2 {
        world.pass(ROUND);
        world.round(0);
    }
    assert_eq!(world.threads[0].entries[0].claimed, Tokens::ZERO);
    assert_eq!(world.threads[0].deadline(), Time::NEVER);
    assert!(!world.pay_at_once(0, 0, PricedOperation::Read, 1));
}
