//! A device does not exceed its rate through loans, advances or late draws.

use super::*;

/// Two tenants want more than the device has. The core of the second comes round late, like a busy
/// core; so does the core of the first if it is the same. Returns the tokens spent beyond the
/// device's rate.
fn excess(mut world: World) -> Tokens {
    let late = world.threads.len() - 1;
    let start = world.now;
    for turn in 0..40_000 {
        world.pass(ROUND);
        world.fill(0, 0, PricedOperation::Read, 64);
        world.fill(late, 1, PricedOperation::Read, 64);
        (0..=late)
            .filter(|&thread| thread < late || turn % 4 == 0)
            .for_each(|thread| world.round(thread));
    }
    world.assert_conserved();
    world.spent_by(0) + world.spent_by(1) - RATE.over(world.now.since(start))
}

/// Tokens spent ahead of time: overdrafts, and one round's tokens.
fn ahead() -> Tokens {
    Tokens::whole(2 * NEG_LIMIT_TOKENS) + WRITE + WRITE + RATE.over(ROUND)
}

#[test]
fn what_is_reserved_on_a_thread_is_not_lent_as_well() {
    let excess = excess(World::new(1, &[critical(210_000), critical(210_000)]));
    assert!(excess <= ahead(), "{excess} too much");
}

/// A reservation drawn later by a tenant on another thread is not lent in addition.
#[test]
fn what_is_reserved_on_another_thread_is_not_lent_as_well() {
    let excess = excess(World::new(2, &[critical(210_000), critical(210_000)]));
    assert!(excess <= ahead(), "{excess} too much");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any number of threads, each with rounds before generation for the device stops: no debt
    /// is written off if reservations do not exceed the rate.
    #[test]
    fn no_more_is_spent_than_is_generated(
        threads in 1usize..4,
        parts in prop::collection::vec(1u64..100, 1..5),
        reserved in 1u64..=100,
        places in prop::collection::vec(1u8..8, 6),
        eager in any::<u8>(),
        pace in prop::collection::vec(1u64..=10, 3),
        advance in prop_oneof![Just(Nanos::ZERO), Just(crate::limits::ADVANCE)],
        seed in any::<u64>(),
    ) {
        let all: u64 = parts.iter().sum();
        let rate = |part: u64| RATE.0 * reserved * part / (100 * all);
        let mut contracts: Vec<_> = parts.iter().map(|&part| critical(rate(part))).collect();
        contracts.push(best_effort(100));
        let rules = TokenPoolRules { advance, ..no_advance() };
        let mut world = World::under(rules, threads, &contracts);
        let mut prng = Prng::from_seed(seed);
        let start = world.now;
        for turn in 0..4_000 {
            world.pass(Nanos(ROUND.0 / 2));
            for (thread, &pace) in pace.iter().enumerate().take(threads) {
                if turn % pace != 0 {
                    continue;
                }
                for (tenant, places) in places.iter().enumerate().take(contracts.len()) {
                    let is_on = threads == 1 || places & 1 << thread != 0;
                    if is_on && (eager & 1 << tenant != 0 || prng.chance(1, 4)) {
                        world.fill(thread, tenant, PricedOperation::Read, 64);
                    }
                }
                world.round(thread);
            }
        }
        world.assert_conserved();
        let forgiven: Tokens = world.threads.iter().map(|thread| thread.totals().forgiven).sum();
        prop_assert_eq!(forgiven, Tokens::ZERO);
        let spent: Tokens = (0..contracts.len()).map(|tenant| world.spent_by(tenant)).sum();
        let overdrafts = (NEG_LIMIT_TOKENS + 1) * i64::try_from(parts.len()).unwrap();
        let most = RATE.over(world.now.since(start)) + Tokens::whole(overdrafts)
            + RATE.over(Nanos(ROUND.0 * SPAN_ROUNDS));
        prop_assert!(spent <= most, "{} of {}", spent, most);
    }
}

/// A thread whose total of spent tokens has saturated continues to report its load.
#[test]
fn the_load_of_a_device_is_known_however_much_was_spent() {
    let mut world = World::new(1, &[best_effort(100)]);
    world.threads[0].totals.spent = Tokens(i64::MAX - 5);
    let mut seen = 0;
    for _ in 0..3 {
        world.enqueue(0, 0, PricedOperation::Read, 1);
        while world.threads[0].waiting() > 0 {
            world.pass(ROUND);
            world.round(0);
        }
        assert_eq!(world.pool.spent_since(&mut seen), Tokens::whole(1));
    }
}
