//! The pool as one thread sees it.

use super::*;

fn pool() -> TokenPool {
    let model = CostModel::new(Price::milli(10_000).unwrap(), Price::milli(500).unwrap());
    TokenPool::new(
        TokenPoolRules::default(),
        TokenRate(1_000_000),
        Nanos::from_micros(100),
        &model,
    )
}

#[test]
fn prices_come_back_as_they_were_set() {
    let pool = pool();
    let model = CostModel::new(Price::milli(20_000).unwrap(), Price::milli(750).unwrap());
    let before = pool.edition();
    pool.set_prices(&model);
    assert_ne!(pool.edition(), before);
    assert_eq!(pool.model(), model);
}

#[test]
fn a_round_is_a_twentieth_of_the_strictest_latency() {
    assert_eq!(
        round_for(Some(Nanos::from_micros(500))),
        Nanos::from_micros(25)
    );
    assert_eq!(round_for(Some(Nanos::from_secs(1))), ROUND_MAX);
    assert_eq!(round_for(Some(Nanos(0))), ROUND_MIN);
    assert_eq!(round_for(None), ROUND_MAX);
}

#[test]
fn thread_numbers_are_given_once_and_again() {
    let pool = pool();
    for expected in 0..THREADS_MAX {
        assert_eq!(pool.join(), Some(expected));
    }
    assert_eq!(pool.join(), None);
    pool.leave(17);
    assert_eq!(pool.join(), Some(17));
    assert_eq!(pool.join(), None);
}

#[test]
fn a_long_sleep_earns_no_burst() {
    let pool = pool();
    let first = pool.generate(Time(1_000_000_000));
    assert_eq!(first, Tokens::whole(500), "five rounds of 100 tokens");
    assert_eq!(pool.generate(Time(1_000_000_000)), Tokens::ZERO);
    assert_eq!(pool.generate(Time(1_000_001_000)), Tokens::whole(1));
    let closed = pool.close_if_due(Time(1_000_001_000));
    assert_eq!(closed.expired, Tokens::whole(401));
    assert_eq!(pool.unclaimed(), Tokens::whole(100));
}

#[test]
fn backlogged_tenants_share_by_weight_and_claim_once() {
    let pool = pool();
    let (mut one, mut two) = (pool.enter_backlog(100), pool.enter_backlog(200));
    pool.give(Tokens(1_000));
    pool.close_if_due(Time(1));
    assert_eq!(pool.claim(100, &mut one), Tokens(300));
    assert_eq!(pool.claim(100, &mut one), Tokens::ZERO);
    assert_eq!(pool.claim(200, &mut two), Tokens(600));
    assert_eq!(
        pool.unclaimed(),
        Tokens(100),
        "what does not divide stays for later"
    );
    assert_eq!(
        pool.borrow(Tokens(1)),
        Tokens::ZERO,
        "it belongs to backlogged tenants"
    );
    pool.leave_backlog(100);
    pool.leave_backlog(200);
    assert_eq!(pool.borrow(Tokens(1_000)), Tokens(100));
}

/// A tenant that claims rarely gets the quota of the time between; one that claims often gains
/// nothing.
#[test]
fn a_slow_thread_keeps_its_share() {
    let pool = pool();
    let (fast, slow) = (pool.join().unwrap(), pool.join().unwrap());
    pool.activate(fast);
    pool.activate(slow);
    let (mut fast_seen, mut slow_seen) = (pool.enter_backlog(100), pool.enter_backlog(100));
    let mut claimed = Tokens::ZERO;
    for turn in 1..=1_000 {
        pool.give(Tokens::whole(1));
        pool.close_if_due(Time(turn * 100_000));
        claimed += pool.claim(100, &mut fast_seen);
        pool.visit(fast, pool.quota());
    }
    assert_eq!(claimed, Tokens::whole(500));
    assert_eq!(pool.claim(100, &mut slow_seen), Tokens::whole(500));
    assert_eq!(pool.unclaimed(), Tokens::ZERO);
}

/// Quota that a removed tenant can no longer claim goes to other tenants.
#[test]
fn orphaned_promises_are_given_again() {
    let pool = pool();
    let (mut stays, _leaves) = (pool.enter_backlog(100), pool.enter_backlog(100));
    pool.give(Tokens::whole(2));
    pool.close_if_due(Time(1));
    pool.leave_backlog(100);
    assert_eq!(pool.claim(100, &mut stays), Tokens::whole(1));
    pool.close_if_due(Time(2));
    assert_eq!(pool.claim(100, &mut stays), Tokens::whole(1));
    assert_eq!(pool.unclaimed(), Tokens::ZERO);
}

/// Reservations above the rate leave best effort without tokens, and do not underflow its share.
#[test]
fn a_debt_ends_somewhere() {
    let pool = pool();
    let mut seen = pool.enter_backlog(100);
    pool.give(Tokens::whole(-1_000));
    let closed = pool.close_if_due(Time(1));
    assert_eq!(closed.forgiven, Tokens::whole(500));
    assert_eq!(
        pool.unclaimed(),
        Tokens::whole(-500),
        "what five rounds generate"
    );
    assert_eq!(pool.claim(100, &mut seen), Tokens::ZERO);
}
