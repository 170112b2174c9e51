use super::*;

const A: HostId = [1; 16];
const B: HostId = [2; 16];
const C: HostId = [3; 16];

fn register(action: RegisterAction, current: u64, new: u64) -> Request {
    let register = ReservationRegister {
        action,
        ignore_key: false,
        persist: None,
    };
    Request::Register(register, RegisterData { current, new })
}

fn acquire(action: AcquireAction, kind: ReservationType, current: u64, preempted: u64) -> Request {
    let data = AcquireData { current, preempted };
    Request::Acquire(ReservationAcquire { action, kind }, data)
}

fn release(action: ReleaseAction, kind: u8, current: u64) -> Request {
    Request::Release(ReservationRelease { action, kind }, ReleaseData { current })
}

/// Registers A with key 1, B with key 2, C with key 3.
fn registered() -> Reservations {
    let mut state = Reservations::default();
    for (host, key) in [(A, 1), (B, 2), (C, 3)] {
        let request = register(RegisterAction::Register, 0, key);
        assert_eq!(state.apply(&host, &request), Ok(Outcome::default()));
    }
    state
}

/// The same with a reservation of A.
fn reserved(kind: ReservationType) -> Reservations {
    let mut state = registered();
    let request = acquire(AcquireAction::Acquire, kind, 1, 0);
    assert_eq!(state.apply(&A, &request), Ok(Outcome::default()));
    state
}

fn holders(state: &Reservations) -> Vec<HostId> {
    let holders = state.registrants().filter(|(_, _, holds)| *holds);
    holders.map(|(host, ..)| *host).collect()
}

fn hosts(state: &Reservations) -> Vec<HostId> {
    state.registrants().map(|(host, ..)| *host).collect()
}

use ReservationNotice as Notice;
use ReservationType as Type;

#[test]
fn access_is_that_of_the_specification() {
    // For each type: whether a registrant without the reservation, and any other host, may read and
    // write.
    let table = [
        (Type::WriteExclusive, (true, false), (true, false)),
        (Type::ExclusiveAccess, (false, false), (false, false)),
        (Type::WriteExclusiveRegistrants, (true, true), (true, false)),
        (
            Type::ExclusiveAccessRegistrants,
            (true, true),
            (false, false),
        ),
        (Type::WriteExclusiveAll, (true, true), (true, false)),
        (Type::ExclusiveAccessAll, (true, true), (false, false)),
    ];
    for (kind, registrant, other) in table {
        let exclusion = reserved(kind).exclusion().expect("a reservation");
        for (host, (reads, writes)) in [(A, (true, true)), (B, registrant), ([9; 16], other)] {
            let may = |access| !exclusion.refuses(&host, access);
            let found = (may(Access::Free), may(Access::Read), may(Access::Write));
            assert_eq!(found, (true, reads, writes), "{kind:?} {host:?}");
        }
    }
    assert_eq!(registered().exclusion(), None);
}

#[test]
fn a_registration_is_made_once_replaced_and_ended_by_its_key() {
    let mut state = registered();
    assert_eq!(state.generation(), 3);
    let cases = [
        (register(RegisterAction::Register, 0, 1), Ok(())),
        (register(RegisterAction::Register, 0, 5), Err(CONFLICT)),
        (register(RegisterAction::Register, 0, 0), Err(INVALID)),
        (register(RegisterAction::Replace, 9, 5), Err(CONFLICT)),
        (register(RegisterAction::Replace, 1, 0), Err(INVALID)),
        (register(RegisterAction::Replace, 1, 5), Ok(())),
        (register(RegisterAction::Unregister, 1, 0), Err(CONFLICT)),
        (register(RegisterAction::Unregister, 5, 0), Ok(())),
        (register(RegisterAction::Unregister, 5, 0), Err(CONFLICT)),
        (register(RegisterAction::Replace, 5, 6), Err(CONFLICT)),
    ];
    for (request, expected) in cases {
        let before = state.clone();
        let result = state.apply(&A, &request).map(drop);
        assert_eq!(result, expected, "{request:?}");
        if result.is_err() {
            assert_eq!(state, before, "{request:?}");
        }
    }
    assert_eq!((hosts(&state), state.generation()), (vec![B, C], 6));
    let ignoring = ReservationRegister {
        action: RegisterAction::Replace,
        ignore_key: true,
        persist: Some(true),
    };
    let data = RegisterData {
        current: 77,
        new: 8,
    };
    let replaced = state.apply(&B, &Request::Register(ignoring, data));
    assert_eq!(replaced, Ok(Outcome::default()));
    assert!(state.persists());
    for key in 0..REGISTRANTS_MAX as u64 {
        let mut host = [0; 16];
        host[..8].copy_from_slice(&(key + 1000).to_le_bytes());
        let request = register(RegisterAction::Register, 0, 1);
        let expected = if key < REGISTRANTS_MAX as u64 - 2 {
            Ok(Outcome::default())
        } else {
            Err(Status::INTERNAL_ERROR)
        };
        assert_eq!(state.apply(&host, &request), expected);
    }
}

#[test]
fn a_reservation_has_one_type_and_is_acquired_by_registrants() {
    for kind in Type::ALL {
        for other in Type::ALL {
            let mut state = reserved(kind);
            let again = acquire(AcquireAction::Acquire, other, 1, 0);
            let expected = if kind == other { Ok(()) } else { Err(CONFLICT) };
            assert_eq!(state.apply(&A, &again).map(drop), expected);
            let theirs = acquire(AcquireAction::Acquire, other, 2, 0);
            let expected = if kind == other && kind.is_held_by_all() {
                Ok(())
            } else {
                Err(CONFLICT)
            };
            assert_eq!(state.apply(&B, &theirs).map(drop), expected);
        }
        let mut state = registered();
        for (host, key) in [([9; 16], 9), (A, 9)] {
            let stranger = acquire(AcquireAction::Acquire, kind, key, 0);
            assert_eq!(state.apply(&host, &stranger), Err(CONFLICT));
        }
        assert_eq!(state.kind(), None);
    }
}

#[test]
fn a_release_is_the_holders_and_notifies_registrants_of_their_types() {
    for kind in Type::ALL {
        let mut state = reserved(kind);
        let by_other = state.apply(&B, &release(ReleaseAction::Release, kind as u8, 2));
        if kind.is_held_by_all() {
            let notices = [A, C].map(|host| (host, Notice::ReservationReleased));
            assert_eq!(by_other.expect("a holder").notices, notices);
            assert_eq!(state.kind(), None);
            continue;
        }
        assert_eq!(by_other, Ok(Outcome::default()));
        assert_eq!(holders(&state), [A]);
        let wrong = release(ReleaseAction::Release, kind as u8 % 6 + 1, 1);
        assert_eq!(state.apply(&A, &wrong), Err(INVALID));
        let wrong = release(ReleaseAction::Release, kind as u8, 2);
        assert_eq!(state.apply(&A, &wrong), Err(CONFLICT));
        // By its end, or by the end of the registration.
        let mut unregistered = state.clone();
        let outcomes = [
            state.apply(&A, &release(ReleaseAction::Release, kind as u8, 1)),
            unregistered.apply(&A, &register(RegisterAction::Unregister, 1, 0)),
        ];
        for outcome in outcomes {
            let told = kind.admits_registrants();
            let notices = [B, C].map(|host| (host, Notice::ReservationReleased));
            let expected = if told { &notices[..] } else { &[] };
            assert_eq!(outcome.expect("the holder").notices, expected, "{kind:?}");
        }
        assert_eq!((state.kind(), unregistered.kind()), (None, None));
        assert_eq!(hosts(&state), [A, B, C]);
        assert_eq!(hosts(&unregistered), [B, C]);
    }
    let mut state = reserved(Type::WriteExclusiveAll);
    for (host, key) in [(A, 1), (B, 2), (C, 3)] {
        assert!(state.kind().is_some(), "there is a holder");
        let end = register(RegisterAction::Unregister, key, 0);
        assert_eq!(state.apply(&host, &end), Ok(Outcome::default()));
    }
    assert_eq!(state.kind(), None);
}

#[test]
fn a_clear_ends_everything_and_notifies_the_others() {
    let mut state = reserved(Type::ExclusiveAccess);
    assert_eq!(
        state.apply(&B, &release(ReleaseAction::Clear, 0, 9)),
        Err(CONFLICT)
    );
    let outcome = state.apply(&B, &release(ReleaseAction::Clear, 0, 2));
    let notices = [A, C].map(|host| (host, Notice::ReservationPreempted));
    assert_eq!(outcome.expect("a registrant").notices, notices);
    assert_eq!((hosts(&state), state.kind()), (vec![], None));
    assert_eq!(state.generation(), 4);
}

/// Expected holders, registrants and notices of a preemption by B, or its status.
type Preempted<'a> = Result<(&'a [HostId], &'a [HostId], &'a [(HostId, Notice)]), Status>;

#[test]
fn a_preemption_ends_registrations_and_replaces_the_reservation_of_the_holder() {
    let gone = |host| (host, Notice::RegistrationPreempted);
    let (we, all) = (Type::WriteExclusive, Type::WriteExclusiveAll);
    let released = (C, Notice::ReservationReleased);
    let cases: [(Option<Type>, Type, u64, Preempted<'_>); 11] = [
        (None, we, 3, Ok((&[], &[A, B], &[gone(C)]))),
        (None, we, 2, Ok((&[], &[A, C], &[]))),
        (None, we, 7, Err(CONFLICT)),
        (Some(we), we, 0, Err(INVALID)),
        (Some(we), we, 7, Err(CONFLICT)),
        (Some(we), we, 1, Ok((&[B], &[B, C], &[gone(A)]))),
        (
            Some(we),
            Type::ExclusiveAccess,
            1,
            Ok((&[B], &[B, C], &[gone(A), released])),
        ),
        (Some(we), we, 3, Ok((&[A], &[A, B], &[gone(C)]))),
        (Some(all), all, 0, Ok((&[B], &[B], &[gone(A), gone(C)]))),
        (Some(all), we, 0, Ok((&[B], &[B], &[gone(A), gone(C)]))),
        (Some(all), all, 3, Ok((&[A, B], &[A, B], &[gone(C)]))),
    ];
    for (before, kind, key, expected) in cases {
        for action in [AcquireAction::Preempt, AcquireAction::PreemptAndAbort] {
            let mut state = before.map_or_else(registered, reserved);
            let result = state.apply(&B, &acquire(action, kind, 2, key));
            let case = format!("{before:?} {kind:?} {key}");
            match (expected, result) {
                (Ok((holding, registrants, notices)), Ok(outcome)) => {
                    assert_eq!(holders(&state), holding, "{case}");
                    assert_eq!(hosts(&state), registrants, "{case}");
                    assert_eq!(outcome.notices, notices, "{case}");
                    assert_eq!(outcome.aborts, action == AcquireAction::PreemptAndAbort);
                    assert_eq!(state.generation(), 4);
                }
                (expected, result) => {
                    assert_eq!(result.map(drop), expected.map(drop), "{case}");
                    assert_eq!(state.generation(), 3);
                }
            }
        }
    }
    // The holder preempts itself: it changes the type.
    let mut state = reserved(we);
    let own = acquire(AcquireAction::Preempt, Type::ExclusiveAccess, 1, 1);
    let outcome = state.apply(&A, &own).expect("its own key");
    assert!(!outcome.aborts);
    assert_eq!(holders(&state), [A]);
    assert_eq!(state.kind(), Some(Type::ExclusiveAccess));
}
