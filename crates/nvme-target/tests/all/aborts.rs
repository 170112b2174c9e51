//! Aborts: the number of waiting Aborts is bounded by the announced limit (ACL).

use crate::common;
use crate::common::{Bed, Client};
use switchyard_target::Limits;
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::identify::Cns;
use wire::nvme::{Abort, AdminCommand, Completion, Identify, IdentifyController, Status};

/// Returns ACL, a 0's based value, as the number of Aborts.
fn announced(admin: &mut Client) -> usize {
    let identify = Identify::new(Cns::CONTROLLER, 0).encode(0);
    let (_, bytes) = admin.fetch(identify, IDENTIFY_BYTES);
    let identify = IdentifyController::parse_prefix(&bytes).expect("4096 bytes");
    usize::from(identify.acl) + 1
}

/// Sends `count` Aborts at once. Returns their answers.
fn abort(admin: &mut Client, count: usize) -> Vec<Completion> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let abort = Abort { sq_id: 1, cid: 77 };
        let abort = AdminCommand::Abort(abort).encode(admin.cid());
        bytes.extend(admin.session.capsule(&abort, &[]));
    }
    admin.send(&bytes);
    (0..count).map(|_| admin.completion()).collect()
}

/// Regression: an admin queue could have all of its entries waiting for the end of a turn or for
/// another core.
#[test]
fn more_aborts_at_a_time_than_announced_are_refused() {
    for cores in [1, 2] {
        let bed = Bed::with(Limits::default(), cores);
        let (mut admin, _queue) = bed.host();
        let most = announced(&mut admin);
        let mut refused = 0;
        // Commands sent at once may arrive in pieces, in different turns.
        common::eventually("too many wait at a time", || {
            let answers = abort(&mut admin, 16);
            let (served, others): (Vec<Completion>, Vec<_>) = answers
                .into_iter()
                .partition(|answer| answer.status.is_success());
            assert!(served.len() >= most, "{others:?}");
            assert!(served.iter().all(|a| a.dword0() == ABORT_NOT_ABORTED));
            for answer in &others {
                assert!(answer.status.is(Status::ABORT_LIMIT_EXCEEDED));
                assert!(!answer.status.dnr(), "it may be sent again");
            }
            refused += others.len();
            refused > 0
        });
        // A host that respects the limit is never refused, however often it aborts.
        for _ in 0..50 {
            let answers = abort(&mut admin, most);
            assert!(answers.iter().all(|answer| answer.status.is_success()));
        }
    }
}
