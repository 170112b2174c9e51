//! Barriers on a core: their order, and their bounds.

use super::*;
use crate::qos::access::{AccessRules, Tenancy};
use std::net::Ipv4Addr;

const HELD_BYTES_MAX: usize = 8 << 20;

const KEY: SlabKey = SlabKey {
    index: 3,
    generation: 1,
};

fn scopes(host: &str) -> Scopes {
    let rules = AccessRules::new(&Tenancy::default()).expect("nothing is said");
    Scopes::of(
        &rules.host_tenants(host, "nqn.2026-11.io.example:a"),
        host,
        [1; 16],
    )
}

fn ticket(slot: u16) -> Ticket {
    Ticket {
        connection: KEY,
        slot,
    }
}

fn barrier(scopes: &Scopes, slot: u16) -> Arc<Barrier> {
    let scope = scopes.scope(1).expect("everybody is somebody");
    Barrier::new(scope, 0, ticket(slot), Ipv4Addr::LOCALHOST.into(), 1)
}

fn due(core: &mut CoreBarriers, now: Time) -> Vec<Due> {
    let mut due = Vec::new();
    core.due(now, &mut due);
    due
}

#[test]
fn a_barrier_waits_for_what_came_before_and_then_for_what_was_sent() {
    let (ours, others) = (scopes("nqn.a"), scopes("nqn.b"));
    let mut core = CoreBarriers::new();
    core.join(&ours, KEY);
    let barrier = barrier(&ours, 0);
    let (now, patience) = (Time(5), Nanos::from_secs(1));
    assert!(core.is_idle());
    core.own(&barrier, now + patience);
    let epoch = core.epoch();
    core.take(&barrier, patience, now);
    assert_ne!(core.epoch(), epoch);
    // What comes now waits, others' does not.
    let first = core
        .wait(ours.iter(), ticket(1), 0, HELD_BYTES_MAX)
        .expect("it is held");
    assert_eq!(core.wait(others.iter(), ticket(2), 0, HELD_BYTES_MAX), None);
    let second = core
        .wait(ours.iter(), ticket(3), 0, HELD_BYTES_MAX)
        .expect("it is held");
    assert_ne!(first, second);
    assert!(matches!(due(&mut core, now)[..], [Due::Search(_)]));
    assert_eq!(core.deadline(), Time::ZERO);
    assert_eq!(core.search_at(&barrier), Some((KEY, 0, epoch)));
    core.searched(&barrier, Search::WaitsFor(ticket(4)));
    core.passed(ticket(3));
    assert!(due(&mut core, now).is_empty() && core.search_at(&barrier).is_none());
    assert_eq!(core.deadline(), now + patience);
    core.passed(ticket(4));
    assert_eq!(core.search_at(&barrier), Some((KEY, 5, epoch)));
    core.searched_queue(&barrier, KEY, Some(7));
    assert!(!core.all_sent(&barrier, |_, _| false));
    assert!(matches!(due(&mut core, now)[..], [Due::LookAtUnsent(_)]));
    assert!(core.all_sent(&barrier, |key, mark| (key, mark) == (KEY, 7)));
    assert!(due(&mut core, now).is_empty(), "it is said once");
    let scope = Arc::clone(&barrier.scope);
    assert!(core.disown(ticket(0)).is_some() && core.next_free(&scope).is_none());
    core.end(&barrier);
    let freed = [first, second].map(|number| {
        let held = core.next_free(&scope).expect("held in order");
        held.number == number
    });
    assert_eq!(freed, [true, true]);
    assert!(core.next_free(&scope).is_none() && core.is_idle());
    core.leave(&ours, KEY);
    assert!(core.members.is_empty());
}

/// Any barrier on a core took the way through a device's memory from every host there.
#[test]
fn a_host_that_always_has_a_barrier_is_no_concern_of_others() {
    let (ours, others) = (scopes("nqn.a"), scopes("nqn.b"));
    let mut core = CoreBarriers::new();
    assert!(!core.concern(Some(&ours), 1) && !core.concern(None, 1));
    core.own(&barrier(&ours, 0), Time(5));
    assert!(core.concern(Some(&ours), 1));
    assert!(!core.concern(Some(&others), 1));
    // A queue without known scopes takes the long way.
    assert!(core.concern(None, 1));
}

#[test]
fn time_and_memory_are_bounded() {
    let ours = scopes("nqn.a");
    let mut core = CoreBarriers::new();
    let (own, other) = (barrier(&ours, 0), barrier(&ours, 1));
    let (now, patience) = (Time(5), Nanos::from_secs(1));
    core.own(&own, now + patience);
    core.join(&ours, KEY);
    core.take(&other, patience, now);
    core.searched(&other, Search::WaitsFor(ticket(1)));
    assert_eq!(core.deadline(), now + patience);
    let half = u32::try_from(HELD_BYTES_MAX / 2).expect("a few MiB");
    for slot in 2..4 {
        core.wait(ours.iter(), ticket(slot), half, HELD_BYTES_MAX)
            .expect("held");
        assert!(due(&mut core, now).is_empty());
    }
    core.wait(ours.iter(), ticket(4), 1, HELD_BYTES_MAX)
        .expect("held");
    assert!(matches!(&due(&mut core, now)[..], [Due::Overflow(b)] if Arc::ptr_eq(b, &own)));
    assert!(core.disown(ticket(0)).is_some());
    // Still too much: the other core's barrier is told.
    core.wait(ours.iter(), ticket(5), 1, HELD_BYTES_MAX)
        .expect("held");
    assert!(matches!(&due(&mut core, now)[..], [Due::Tell(b)] if Arc::ptr_eq(b, &other)));
    let late = now + patience + BARRIER_MARGIN;
    assert!(matches!(&due(&mut core, late)[..], [Due::Forget(b)] if Arc::ptr_eq(b, &other)));
    core.end(&other);
    while core.next_free(&other.scope).is_some() {}
    assert!(core.held_bytes == 0 && core.is_idle());
}

/// The barrier that failed was that of the last one to hold something, however little.
#[test]
fn who_holds_most_pays_for_too_much() {
    let (greedy, modest) = (scopes("nqn.a"), scopes("nqn.b"));
    let mut core = CoreBarriers::new();
    let (now, patience) = (Time(5), Nanos::from_secs(1));
    let (own, other) = (barrier(&greedy, 0), barrier(&modest, 1));
    core.own(&own, now + patience);
    core.own(&other, now + patience);
    let most = u32::try_from(HELD_BYTES_MAX).expect("a few MiB");
    core.wait(greedy.iter(), ticket(2), most, HELD_BYTES_MAX)
        .expect("held");
    core.wait(modest.iter(), ticket(3), 1, HELD_BYTES_MAX)
        .expect("held");
    assert!(matches!(&due(&mut core, now)[..], [Due::Overflow(b)] if Arc::ptr_eq(b, &own)));
    assert!(core.disown(ticket(0)).is_some());
    while core.next_free(&own.scope).is_some() {}
    core.wait(modest.iter(), ticket(4), 1, HELD_BYTES_MAX)
        .expect("held");
    assert!(due(&mut core, now).is_empty());
}

/// An aborted command kept its entry, and what it had brought counted, until the barrier ended.
#[test]
fn a_held_command_that_is_over_counts_no_longer() {
    let mut core = CoreBarriers::new();
    let host = scopes("h");
    let (now, patience) = (Time(5), Nanos::from_secs(1));
    let own = barrier(&host, 0);
    core.own(&own, now + patience);
    let most = u32::try_from(HELD_BYTES_MAX).expect("a few MiB");
    for _ in 0..3 {
        let number = core
            .wait(host.iter(), ticket(2), most, HELD_BYTES_MAX)
            .expect("held");
        core.forget(number);
    }
    let kept = core
        .wait(host.iter(), ticket(3), 1, HELD_BYTES_MAX)
        .expect("held");
    assert!(due(&mut core, now).is_empty());
    assert!(core.disown(ticket(0)).is_some());
    let next = core.next_free(&own.scope).map(|held| held.number);
    assert_eq!(next, Some(kept));
    assert!(core.next_free(&own.scope).is_none() && core.is_idle());
}

/// Two tenants have a barrier at the same time: each end lets go what is its own.
#[test]
fn barriers_of_two_tenants_end_each_for_itself() {
    let (ours, others) = (scopes("nqn.a"), scopes("nqn.b"));
    let mut core = CoreBarriers::new();
    let (now, patience) = (Time(5), Nanos::from_secs(1));
    let (first, second) = (barrier(&ours, 0), barrier(&others, 1));
    for barrier in [&first, &second] {
        core.own(barrier, now + patience);
        core.take(barrier, patience, now);
    }
    let wait = |core: &mut CoreBarriers, scopes: &Scopes, slot| {
        core.wait(scopes.iter(), ticket(slot), 8, HELD_BYTES_MAX)
            .expect("it is held")
    };
    let held = [wait(&mut core, &ours, 2), wait(&mut core, &others, 3)];
    let ended = core.disown(ticket(1)).expect("the second");
    assert!(Arc::ptr_eq(&ended, &second));
    core.end(&second);
    // Nothing more of the one that ended is done, and all of the other one is.
    core.searched(&second, Search::Over);
    let tasks = due(&mut core, now);
    assert!(
        matches!(&tasks[..], [Due::Search(b) | Due::LookAtUnsent(b)] if Arc::ptr_eq(b, &first))
    );
    let free = |core: &mut CoreBarriers, of: &Arc<Barrier>| {
        core.next_free(&of.scope).map(|held| held.number)
    };
    assert_eq!(free(&mut core, &first), None);
    assert_eq!(free(&mut core, &second), Some(held[1]));
    assert_eq!(free(&mut core, &second), None);
    let ended = core.disown(ticket(0)).expect("the first");
    assert!(Arc::ptr_eq(&ended, &first));
    core.end(&first);
    assert_eq!(free(&mut core, &first), Some(held[0]));
    assert_eq!(free(&mut core, &first), None);
    assert!(core.held_bytes == 0 && core.is_idle());
}

/// A core sleeps no longer than a barrier of another one may take, and not at all while it has
/// something to look at.
#[test]
fn a_core_wakes_for_the_barrier_of_another_one() {
    let ours = scopes("nqn.a");
    let mut core = CoreBarriers::new();
    let (now, patience) = (Time(5), Nanos::from_secs(1));
    let until = now + patience + BARRIER_MARGIN;
    assert_eq!(core.deadline(), Time::NEVER);
    // It has no queue of the tenant: nothing came before the barrier.
    let first = barrier(&ours, 0);
    core.take(&first, patience, now);
    assert_eq!(core.deadline(), Time::ZERO);
    assert!(core.all_sent(&first, |_, _| false));
    assert_eq!(core.deadline(), until);
    let most = u32::try_from(HELD_BYTES_MAX).expect("a few MiB");
    core.wait(ours.iter(), ticket(1), most, HELD_BYTES_MAX)
        .expect("held");
    assert_eq!(core.deadline(), until);
    core.wait(ours.iter(), ticket(2), 1, HELD_BYTES_MAX)
        .expect("held");
    assert_eq!(core.deadline(), Time::ZERO);
    assert!(matches!(&due(&mut core, now)[..], [Due::Tell(b)] if Arc::ptr_eq(b, &first)));
    assert_eq!(core.deadline(), until);
    core.end(&first);
    while core.next_free(&first.scope).is_some() {}
    assert_eq!(core.deadline(), Time::NEVER);
    // It has one, which has answers to send.
    core.join(&ours, KEY);
    let second = barrier(&ours, 3);
    core.take(&second, patience, now);
    assert_eq!(core.deadline(), Time::ZERO);
    core.searched_queue(&second, KEY, Some(7));
    assert_eq!(core.deadline(), until);
    assert!(core.all_sent(&second, |_, _| true));
    assert_eq!(core.deadline(), until);
}
