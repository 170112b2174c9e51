//! A latency-critical tenant that stops sending requests on one of several threads.

use super::*;
use crate::limits::SILENCE;

impl World {
    /// Advances time; threads run rounds at their deadlines. Returns the number of rounds.
    pub(super) fn idle(&mut self, span: Nanos) -> u32 {
        let end = self.now + span;
        let mut rounds = 0;
        loop {
            let next =
                (0..self.threads.len()).min_by_key(|&thread| self.threads[thread].deadline());
            let Some(thread) = next.filter(|&thread| self.threads[thread].deadline() <= end) else {
                break;
            };
            self.now = self.now.max(self.threads[thread].deadline());
            self.round(thread);
            rounds += 1;
        }
        self.now = end;
        rounds
    }
}

/// After one request here, the other thread has the tenant's whole demand.
#[test]
fn a_thread_without_requests_does_not_count() {
    let mut world = World::new(2, &[critical(100_000)]);
    world.enqueue(0, 0, PricedOperation::Read, 1);
    world.round(0);
    assert_eq!(world.threads[0].waiting(), 0);
    let mut rounds = 0;
    for _ in 0..2_000 {
        world.enqueue(1, 0, PricedOperation::Read, 1);
        rounds += world.idle(Nanos(10_000));
    }
    assert!(rounds >= 1_000, "{rounds}");
    assert_eq!(world.accounts[0].threads(), 1);
    assert!(world.pay_at_once(1, 0, PricedOperation::Read, 1));
    // When it becomes idle there as well, its clock stops.
    world.idle(SILENCE + SILENCE);
    world.idle(Nanos::from_secs(1));
    let before = world.accounts[0].balance();
    world.enqueue(0, 0, PricedOperation::Read, 1);
    world.round(0);
    assert_eq!(world.accounts[0].balance(), before - Tokens::whole(1));
}

/// A thread with few requests of the tenant keeps its part against a thread with many.
#[test]
fn a_thread_with_few_requests_has_its_part() {
    let mut world = World::new(2, &[critical(100_000), best_effort(100)]);
    world.fill(0, 1, PricedOperation::Write, 100);
    let mut late = 0;
    for turn in 0..40_000 {
        world.fill(0, 0, PricedOperation::Read, 64);
        world.fill(0, 1, PricedOperation::Write, 100);
        world.pass(ROUND);
        world.round(0);
        if turn % 40 == 0 {
            world.enqueue(1, 0, PricedOperation::Read, 1);
            world.round(1);
            late += u32::from(turn > 1_000 && world.threads[1].waiting() > 0);
        } else if world.threads[1].deadline() <= world.now {
            world.round(1);
        }
    }
    assert!(late <= 10, "{late} of 975 waited");
}

/// With any debt, a core without other work visits it only a few times.
#[test]
fn an_idle_core_sleeps_in_the_end() {
    for rate in [1, 1_000, 100_000] {
        let mut world = World::new(1, &[critical(rate)]);
        world.enqueue(0, 0, PricedOperation::Write, 200);
        world.round(0);
        assert_eq!(world.threads[0].waiting(), 0);
        assert!(world.accounts[0].balance() < Tokens::whole(-1_900));
        let rounds = world.idle(Nanos::from_secs(10_000));
        assert!(rounds <= 20, "{rounds} rounds at {rate}");
        assert_eq!(world.threads[0].deadline(), Time::NEVER);
        assert!(
            world.accounts[0].balance() >= Tokens::ZERO,
            "its debt is paid"
        );
    }
}

/// A tenant stopped by its part of the rate continues when the part has grown, and the core need
/// not visit it before.
#[test]
fn a_core_does_not_look_at_a_part_that_is_spent_without_end() {
    let mut world = World::new(2, &[critical(4_000), best_effort(100)]);
    // Nothing is lent.
    world.enqueue(1, 1, PricedOperation::Write, u32::MAX);
    let mut rounds = 0;
    for _ in 0..100 {
        world.enqueue(1, 0, PricedOperation::Read, 1);
        let end = world.now + Nanos(SILENCE.0 / 2);
        while world.now < end {
            world.fill(0, 0, PricedOperation::Read, 64);
            world.round(0);
            rounds += 1;
            let due = |thread: usize| world.threads[thread].deadline();
            assert!(due(0) > world.now);
            world.now = due(0).min(due(1)).max(world.now);
            if due(1) <= world.now {
                world.round(1);
            }
        }
    }
    assert!(world.spent_by(0) >= Tokens::whole(2_000));
    assert!(rounds <= 45_000, "{rounds} rounds in half a second");
}
