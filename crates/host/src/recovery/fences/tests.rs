//! Tests of fences.

use super::*;

const fn span(start: u64, end: u64) -> Span {
    Span {
        nsid: 1,
        start,
        end,
    }
}

const LIMIT: Nanos = Nanos::from_secs(10);

/// Parameters of a controller that supports End Controller, in this process of a target.
fn controller(cntlid: u16, incarnation: u64) -> Parameters {
    Parameters {
        cntlid,
        incarnation,
        fenced: true,
        quiet: LIMIT,
        ..Parameters::default()
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Nanos::from_secs(seconds)
}

#[test]
fn each_loss_has_a_fence_of_its_own() {
    let (mut fences, mut fence_snapshot) = (Fences::default(), FenceSnapshot::default());
    fences.raise(1, &controller(7, 0), at(0));
    fences.raise(2, &controller(8, 0), at(3));
    fence_snapshot.update(&fences);
    assert_eq!(
        fence_snapshot.replay_permission(1),
        ReplayPermission::Fenced
    );
    assert_eq!(
        fence_snapshot.replay_permission(2),
        ReplayPermission::Fenced
    );
    fences.lower(2);
    fence_snapshot.update(&fences);
    assert_eq!(
        fence_snapshot.replay_permission(1),
        ReplayPermission::Fenced
    );
    assert_eq!(
        fence_snapshot.replay_permission(2),
        ReplayPermission::Allowed
    );
    fences.meet(&controller(7, 0), at(4));
    fence_snapshot.update(&fences);
    assert_eq!(
        fence_snapshot.replay_permission(1),
        ReplayPermission::Allowed
    );
}

/// The other process may be on another machine that has the same storage.
#[test]
fn only_a_later_process_of_the_same_boot_shows_that_the_one_before_is_over() {
    const BOOT: u64 = 9 << 32;
    #[derive(Debug, PartialEq)]
    enum End {
        Over,
        Asked,
        Expires,
    }
    for (before, now, end) in [
        (BOOT | 5, BOOT | 5, End::Asked),
        (BOOT | 5, BOOT | 6, End::Over),
        (BOOT | 5, (2 * BOOT) | 5, End::Expires),
        (5, 6, End::Expires),
        (0, BOOT | 6, End::Asked),
        (BOOT | 5, 0, End::Asked),
        (0, 0, End::Asked),
    ] {
        // Identifiers of another process prove nothing.
        for cntlid in [8, 7] {
            let is_same_controller = cntlid == 7 && end == End::Asked;
            let mut fences = Fences::default();
            fences.raise(1, &controller(7, before), at(0));
            fences.leave(at(1));
            fences.meet(&controller(cntlid, now), at(2));
            let found = if fences.len() == 0 {
                End::Over
            } else if fences.take_due(at(2)).is_some() {
                assert!(!fences.expire(at(1000)), "only its answer says so");
                End::Asked
            } else {
                assert_eq!(fences.next_expiry(), at(1) + LIMIT);
                End::Expires
            };
            let expected = if is_same_controller { &End::Over } else { &end };
            assert_eq!(&found, expected, "{before:#x}, then {now:#x}, {cntlid}");
        }
    }
}

#[test]
fn where_nobody_says_so_a_fence_falls_when_its_connections_were_closed_for_long_enough() {
    let foreign = Parameters {
        fenced: false,
        ..controller(9, 0)
    };
    let mut fences = Fences::default();
    fences.raise(1, &controller(7, 0), at(0));
    fences.meet(&foreign, at(0));
    assert_eq!(fences.next_expiry(), Time::NEVER);
    assert!(!fences.expire(at(100)), "it may still be sending");
    fences.leave(at(2));
    let slower = Parameters {
        quiet: Nanos::from_secs(20),
        ..controller(8, 0)
    };
    fences.raise(2, &slower, at(5));
    fences.leave(at(6));
    fences.part();
    assert_eq!(fences.next_expiry(), Time::NEVER, "it may be asked for");
    fences.meet(&foreign, at(7));
    assert_eq!(fences.next_expiry(), at(12));
    assert!(!fences.expire(at(11)));
    assert!(fences.expire(at(12)));
    assert_eq!((fences.len(), fences.standing[0].generation), (1, 2));
    assert!(!fences.expire(at(25)), "its controller has a slower timer");
    assert!(fences.expire(at(26)));
    assert_eq!(fences.len(), 0);
}

#[test]
fn the_end_of_each_is_asked_for_once_and_again_where_it_was_refused() {
    let mut fences = Fences::default();
    fences.raise(1, &controller(7, 0), at(0));
    fences.raise(2, &controller(8, 0), at(1));
    assert_eq!(fences.next_ask(), Time::NEVER);
    fences.meet(&controller(9, 0), at(2));
    assert_eq!(fences.next_ask(), at(2));
    let asked = |fences: &mut Fences, now| fences.take_due(now).map(|fence| fence.generation);
    assert_eq!(asked(&mut fences, at(1)), None);
    assert_eq!(asked(&mut fences, at(2)), Some(1));
    assert_eq!(asked(&mut fences, at(2)), Some(2));
    assert_eq!(
        (asked(&mut fences, at(9)), fences.next_ask()),
        (None, Time::NEVER)
    );
    fences.ask_again(2, at(5));
    fences.ask_again(3, at(4));
    assert_eq!(fences.next_ask(), at(5));
    assert_eq!(asked(&mut fences, at(5)), Some(2));
    fences.ask_again(1, at(7));
    fences.lower(1);
    assert_eq!(fences.next_ask(), Time::NEVER);
}

#[test]
fn a_fence_is_overdue_once_and_closes_blocks_until_it_falls() {
    let (mut fences, mut fence_snapshot) = (Fences::default(), FenceSnapshot::default());
    fences.raise(1, &controller(7, 0), at(0));
    fences.raise(2, &controller(8, 0), at(3));
    assert_eq!(fences.next_overdue(LIMIT), at(10));
    assert!(!fences.mark_overdue(at(9), LIMIT));
    assert!(fences.mark_overdue(at(10), LIMIT) && !fences.mark_overdue(at(10), LIMIT));
    assert_eq!(fences.next_overdue(LIMIT), at(13));
    fence_snapshot.update(&fences);
    assert_eq!(
        fence_snapshot.replay_permission(1),
        ReplayPermission::Overdue
    );
    assert_eq!(
        fence_snapshot.replay_permission(2),
        ReplayPermission::Fenced
    );
    fence_snapshot.close(1, span(4, 8), true);
    assert!(fence_snapshot.closes(span(7, 9)) && !fence_snapshot.closes(span(8, 9)));
    let elsewhere = Span {
        nsid: 2,
        ..span(4, 8)
    };
    assert!(!fence_snapshot.closes(elsewhere));
    fences.lower(2);
    fence_snapshot.update(&fences);
    assert!(fence_snapshot.closes(span(4, 8)), "the other fence fell");
    fences.lower(1);
    fence_snapshot.update(&fences);
    assert!(fence_snapshot.is_open());
}

/// They must not stay held if the thread that gave the write up no longer waits.
#[test]
fn blocks_that_a_lost_association_held_are_closed_until_its_fence_falls() {
    let (mut fences, mut fence_snapshot) = (Fences::default(), FenceSnapshot::default());
    fence_snapshot.hold(1, span(0, 4));
    assert!(fence_snapshot.holds(span(3, 5)) && fence_snapshot.is_open());
    fences.raise(1, &controller(7, 0), at(0));
    fence_snapshot.update(&fences);
    assert!(!fence_snapshot.holds_any() && fence_snapshot.closes(span(3, 5)));
    fence_snapshot.hold(2, span(0, 4));
    fence_snapshot.let_go(1, span(0, 4));
    assert!(fence_snapshot.holds(span(0, 1)), "another one holds them");
    fences.lower(1);
    fence_snapshot.update(&fences);
    assert!(fence_snapshot.is_open() && fence_snapshot.holds_any());
}

#[test]
fn blocks_are_closed_before_the_controller_knows_of_the_loss_and_never_without_one() {
    let (mut fences, mut fence_snapshot) = (Fences::default(), FenceSnapshot::default());
    fence_snapshot.close(1, span(0, 1), false);
    assert!(fence_snapshot.is_open(), "that association is live");
    fence_snapshot.close(1, span(0, 1), true);
    assert!(fence_snapshot.closes(span(0, 1)));
    fences.raise(1, &controller(7, 0), at(0));
    fence_snapshot.update(&fences);
    assert!(fence_snapshot.closes(span(0, 1)), "now it has a fence");
    fences.lower(1);
    fence_snapshot.update(&fences);
    assert!(fence_snapshot.is_open());
    fence_snapshot.close(1, span(0, 1), true);
    assert!(fence_snapshot.is_open(), "it is known to be over");
}
