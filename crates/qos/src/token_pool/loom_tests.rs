//! The pool in every interleaving of loom's memory model. Run by `scripts/test --all`.

use super::*;
use loom::sync::Arc;
use loom::thread;

fn pool() -> Arc<TokenPool> {
    let model = CostModel::new(Price::READ, Price::READ);
    // A token per nanosecond, so that numbers are small.
    Arc::new(TokenPool::new(
        TokenPoolRules::default(),
        TokenRate(1),
        Nanos::from_micros(10),
        &model,
    ))
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // More preemptions take minutes.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Runs a thread's round from the pool's view; returns the tokens generated less those claimed,
/// drawn and lost.
fn round(pool: &TokenPool, thread: u32, now: u64) -> Tokens {
    pool.activate(thread);
    let generated = pool.generate(Time(now));
    let mut seen = pool.enter_backlog(1);
    let closed = pool.close_if_due(Time(now));
    let quota = pool.quota();
    let claimed = pool.claim(1, &mut seen);
    pool.visit(thread, quota);
    pool.leave_backlog(1);
    pool.deactivate(thread);
    generated + closed.forgiven - closed.expired - claimed
}

/// Two threads generate, distribute and claim concurrently: time is generated for once, and every
/// token is in one place.
#[test]
fn no_token_is_made_or_lost() {
    check(|| {
        let pool = pool();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || round(&pool, 1, 700))
        };
        let here = round(&pool, 0, 1_000);
        let there = other.join().unwrap();
        assert_eq!(here + there, pool.unclaimed());
        assert!(pool.unclaimed() >= Tokens::ZERO);
        assert_eq!(pool.flows.backlogged.load(Ordering::Relaxed), 0);
    });
}

/// A loan and a claim race for the same tokens.
#[test]
fn a_token_is_taken_once() {
    check(|| {
        let pool = pool();
        pool.give(Tokens(10));
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.borrow(Tokens(7)))
        };
        let mut seen = pool.enter_backlog(1);
        pool.close_if_due(Time(1));
        let claimed = pool.claim(1, &mut seen);
        let lent = other.join().unwrap();
        assert_eq!(claimed + lent + pool.unclaimed(), Tokens(10));
    });
}

/// A thread number is assigned to one thread at a time.
#[test]
fn two_threads_have_two_numbers() {
    check(|| {
        let pool = pool();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.join())
        };
        let here = pool.join();
        assert_ne!(here, other.join().unwrap());
    });
}
