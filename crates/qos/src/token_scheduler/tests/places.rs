//! The places of tenants and of queued requests: assigned, freed in any order, and reused.

use super::*;

/// Slot 0 must not be given to a thread that joins when all slots are in use, nor to one that joins
/// after another thread has left.
#[test]
fn slot_zero_is_not_reused_while_somebody_means_it() {
    let pool = pool();
    let mut thread = scheduler::<u32>(&pool);
    let accounts: Vec<_> = (0..4).map(|id| account(id, best_effort(1))).collect();
    let keys: Vec<_> = accounts
        .iter()
        .map(|account| thread.attach(account))
        .collect();
    let again = thread.attach(&accounts[0]);
    assert_eq!(again, keys[0], "a second connection of the same tenant");
    thread
        .enqueue(keys[0], PricedOperation::Read, 1, 7)
        .unwrap();
    thread.detach(keys[0], &mut |_| panic!("another connection is there"));
    let new = account(9, best_effort(1));
    let other = thread.attach(&new);
    assert!(!keys.contains(&other));
    let mut left = Vec::new();
    thread.detach(again, &mut |item| left.push(item));
    assert_eq!(left, [7]);
    // Now the place is free; the key of the detached tenant does not find its successor.
    let next = thread.attach(&account(10, best_effort(1)));
    assert!(!keys.contains(&next));
    assert_eq!(
        thread.enqueue(keys[0], PricedOperation::Read, 1, 8),
        Err(Refused::Closed(8))
    );
    assert_eq!(thread.tally(keys[0]), None);
    thread.detach(keys[0], &mut |_| panic!("it left already"));
    thread.enqueue(next, PricedOperation::Read, 1, 9).unwrap();
}

#[test]
fn a_full_thread_hands_requests_back() {
    let pool = pool();
    let mut thread: TokenScheduler<u32> = TokenScheduler::new(pool.clone(), 2).unwrap();
    let key = thread.attach(&account(1, best_effort(1)));
    for item in 0..2 {
        thread
            .enqueue(key, PricedOperation::Write, u32::MAX, item)
            .unwrap();
    }
    assert_eq!(
        thread.enqueue(key, PricedOperation::Read, 1, 2),
        Err(Refused::Full(2))
    );
    let mut left = Vec::new();
    thread.drain(key, &mut |item| left.push(item));
    assert_eq!(left, [0, 1], "in their order");
    thread.enqueue(key, PricedOperation::Read, 1, 3).unwrap();
    let none: TokenScheduler<u32> = TokenScheduler::new(pool, 0).unwrap();
    assert_eq!(none.waiting(), 0);
}

#[test]
fn what_is_given_up_is_taken_out_and_costs_nothing() {
    let pool = pool();
    let mut thread = scheduler(&pool);
    let one = account(1, best_effort(1));
    let key = thread.attach(&one);
    for item in 0..10u32 {
        thread
            .enqueue(key, PricedOperation::Write, 1, item)
            .unwrap();
    }
    let mut taken = Vec::new();
    thread.withdraw(key, |item| item % 3 == 0, &mut |item| taken.push(item));
    assert_eq!(taken, [0, 3, 6, 9]);
    assert_eq!(thread.waiting(), 6);
    let mut released = Vec::new();
    let mut now = Time(1);
    while thread.waiting() > 0 {
        thread.round(now, &mut |item, _| released.push(item));
        now = now + ROUND;
    }
    assert_eq!(released, [1, 2, 4, 5, 7, 8], "in order");
    assert_eq!(thread.totals().spent, Tokens::whole(60));
    // The last queued request: the queue is then empty.
    thread.enqueue(key, PricedOperation::Write, 1, 42).unwrap();
    thread.withdraw(key, |_| true, &mut |item| taken.push(item));
    thread.round(now, &mut |item, _| released.push(item));
    assert_eq!((taken.len(), released.len()), (5, 6));
    assert_eq!(thread.deadline(), Time::NEVER);
}

#[test]
fn one_request_is_taken_out_wherever_it_is_and_its_place_serves_again() {
    let mut thread = TokenScheduler::new(pool(), 5).unwrap();
    let key = thread.attach(&account(1, best_effort(1)));
    let ask = |thread: &mut TokenScheduler<u32>, item| {
        thread.enqueue(key, PricedOperation::Write, 1, item)
    };
    for item in 0..5 {
        ask(&mut thread, item).unwrap();
    }
    for item in [2, 4, 0] {
        assert_eq!(thread.remove(key, |&other| other == item), Some(item));
        assert_eq!(thread.remove(key, |&other| other == item), None);
    }
    for item in 5..8 {
        ask(&mut thread, item).unwrap();
    }
    assert_eq!(ask(&mut thread, 8), Err(Refused::Full(8)));
    assert_eq!(thread.waiting(), 5);
    let mut left = Vec::new();
    thread.drain(key, &mut |item| left.push(item));
    assert_eq!(left, [1, 3, 5, 6, 7]);
    // The only queued request: the queue is then empty, and the next request is seen.
    ask(&mut thread, 9).unwrap();
    assert_eq!(thread.remove(key, |_| true), Some(9));
    thread.round(Time(1), &mut |_, _| panic!("nothing waits"));
    assert_eq!(thread.deadline(), Time::NEVER);
    ask(&mut thread, 10).unwrap();
    assert_eq!(thread.waiting(), 1);
}
