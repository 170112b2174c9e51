//! The paper's Algorithm 1 without additions.

use super::*;

fn world(contracts: &[Contract]) -> World {
    World::under(TokenPoolRules::reflex_paper(), 1, contracts)
}

#[test]
fn a_tenant_at_its_limit_waits_though_nobody_else_asks() {
    let released = |rules| {
        let mut world = World::under(rules, 1, &[critical(100_000)]);
        world.fill(0, 0, PricedOperation::Read, 1_000);
        world.round(0);
        world.pass(ROUND);
        world.round(0);
        world.assert_conserved();
        (world.spent_by(0), world.accounts[0].limited_rounds())
    };
    let (spent, limited) = released(TokenPoolRules::reflex_paper());
    // 50 on credit, and 2.5 tokens earned in 25 µs, of which a request takes the last part.
    assert_eq!(spent, Tokens::whole(53));
    assert_eq!(limited, 2);
    let (lent, limited) = released(no_advance());
    assert!(lent > spent, "the extended rules lend it what nobody wants");
    assert_eq!(limited, 2);
}

#[test]
fn it_saves_what_it_received_in_three_rounds_as_they_were() {
    let saved = |rules| {
        let mut world = World::under(rules, 1, &[critical(100_000), best_effort(100)]);
        world.enqueue(0, 0, PricedOperation::Read, 1);
        let mut most = Tokens::ZERO;
        // Rounds of 10 µs instead of the possible 25 µs, in each of which it earns one token.
        for _ in 0..20 {
            world.fill(0, 1, PricedOperation::Read, 64);
            world.round(0);
            most = most.max(world.accounts[0].balance());
            world.pass(Nanos::from_micros(10));
        }
        world.assert_conserved();
        most
    };
    assert_eq!(saved(TokenPoolRules::reflex_paper()), Tokens::whole(3));
    // Three rounds of 25 µs.
    assert_eq!(saved(no_advance()), Tokens::whole(7));
}

#[test]
fn nothing_is_in_the_bucket_after_a_round_of_all_threads() {
    let mut world = world(&[critical(100_000)]);
    for _ in 0..10 {
        world.enqueue(0, 0, PricedOperation::Read, 1);
        world.round(0);
        world.pass(ROUND);
        assert_eq!(world.pool.unclaimed(), Tokens::ZERO);
    }
    // A debt, as after a late thread, is written off.
    world.pool.give(-Tokens::whole(500));
    world.enqueue(0, 0, PricedOperation::Read, 1);
    world.round(0);
    assert_eq!(world.pool.unclaimed(), Tokens::ZERO);
}
