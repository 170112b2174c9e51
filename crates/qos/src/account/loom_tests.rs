//! An account in every interleaving of loom's memory model. Run by `scripts/test --all`.

use super::*;
use loom::sync::Arc;
use loom::thread;

/// A token per nanosecond, so that numbers are small.
const RATE: TokenRate = TokenRate(1);
/// More than any test earns.
const MUCH: Tokens = Tokens(1 << 20);

fn account() -> Arc<Account> {
    Arc::new(Account::new(TenantId(1), Contract::LatencyCritical(RATE)))
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // More preemptions take minutes.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Runs one operation on two other threads and on this one; returns the results.
fn three<T: 'static>(
    account: &Arc<Account>,
    what: impl Fn(&Account, u64) -> T + Copy + Send + 'static,
) -> Vec<T> {
    let others: Vec<_> = (1..3)
        .map(|thread| {
            let account = account.clone();
            thread::spawn(move || what(&account, thread))
        })
        .collect();
    let mut got = vec![what(account, 0)];
    got.extend(others.into_iter().map(|other| other.join().unwrap()));
    got
}

fn sum(tokens: &[Tokens]) -> Tokens {
    tokens
        .iter()
        .copied()
        .fold(Tokens::ZERO, |sum, more| sum + more)
}

/// Three threads collect concurrently, at different times.
#[test]
fn loom_a_nanosecond_is_earned_for_once() {
    check(|| {
        let account = account();
        account.enter_thread(Time(1_000));
        let earned = three(&account, |account, thread| {
            account.earn(RATE, Time(1_100 + thread * 100), MUCH)
        });
        assert_eq!(sum(&earned), RATE.over(Nanos(300)));
        assert_eq!(account.balance(), sum(&earned));
    });
}

/// Concurrent deposit, spending and donation: every token is in one place.
#[test]
fn loom_a_token_is_spent_or_given_away_once() {
    check(|| {
        let account = account();
        account.put(Tokens(100));
        let gone = three(&account, |account, thread| match thread {
            0 => {
                account.put(Tokens(50));
                Tokens(-50)
            }
            1 => {
                let mut seen = account.balance();
                while let Err(now) = account.spend(seen, Tokens(30)) {
                    seen = now;
                }
                Tokens(30)
            }
            _ => account.donate(Tokens(40), 500),
        });
        assert_eq!(account.balance() + sum(&gone), Tokens(100));
    });
}

/// Two threads request an advance that only one of them can get in full, while a third thread
/// repays.
#[test]
fn loom_no_more_is_advanced_than_the_limit() {
    check(|| {
        let account = account();
        assert_eq!(account.advance(Tokens(20), Tokens(100)), Tokens(20));
        let got = three(&account, |account, thread| {
            if thread == 0 {
                account.repay(Tokens(20));
                return Tokens(-20);
            }
            let more = account.advance(Tokens(70), Tokens(100));
            assert!(account.advanced() <= Tokens(100));
            more
        });
        assert_eq!(account.advanced(), Tokens(20) + sum(&got));
    });
}

/// Threads leave one by one: the last one stays, and earns for all.
#[test]
fn loom_one_thread_is_left_to_collect() {
    check(|| {
        let account = account();
        for _ in 0..3 {
            account.enter_thread(Time(1_000));
        }
        let left = three(&account, |account, _| account.leave_to_others());
        assert_eq!(left.iter().filter(|left| **left).count(), 2);
        assert_eq!(account.threads.load(Ordering::Relaxed), 1);
    });
}

/// A tenant that was active nowhere becomes active on several threads concurrently: the time before
/// the first of them is not earned.
#[test]
fn loom_time_that_nobody_asked_for_is_not_earned() {
    check(|| {
        let account = account();
        let earned = three(&account, |account, _| {
            account.enter_thread(Time(1_000));
            account.earn(RATE, Time(1_100), MUCH)
        });
        assert!(sum(&earned) <= RATE.over(Nanos(100)));
    });
}
