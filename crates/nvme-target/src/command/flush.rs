//! Flush of one or all namespaces, and the flush of a normal shutdown. `[NVMe Base 2.0 §7.1,
//! §3.6.2]`

use crate::command::device::part;
use crate::limits::DATASET_PARALLEL_MAX;
use crate::namespace::CoreNamespace;
use crate::qos::access::Rights;
use crate::request::{Slot, Step, Ticket};
use base::mutation::{self, Mutation};
use block::Operation;
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

/// Takes back the request for a namespace because its device had no room for it: this namespace and
/// the following ones are to be flushed again.
pub(crate) fn put_back(entry: &mut Slot, nsid: u32) {
    let index = if entry.nsid == NSID_BROADCAST {
        nsid - 1
    } else {
        0
    };
    entry.parts.next = entry.parts.next.min(index);
}

/// Returns the request for the subsystem's next namespace that has a cache to flush. The command
/// waits for a paused namespace after the requests begun so far have completed; a Flush of one
/// namespace has passed its gate already. Without `answers`, nothing more is begun.
pub(crate) fn next(
    entry: &mut Slot,
    ticket: Ticket,
    rights: Option<&Rights>,
    namespaces: &[Option<CoreNamespace>],
    answers: bool,
) -> Step {
    let all = entry.nsid == NSID_BROADCAST;
    let last = if all { namespaces.len() } else { 1 };
    let mut paused = None;
    while answers
        && (entry.parts.next as usize) < last
        && entry.parts.outstanding < DATASET_PARALLEL_MAX
    {
        let nsid = if all {
            entry.parts.next + 1
        } else {
            entry.nsid
        };
        entry.parts.next += 1;
        if all && rights.is_some_and(|rights| rights.check_any(nsid).is_err()) {
            continue;
        }
        let Some(Some(namespace)) = namespaces.get((nsid as usize).wrapping_sub(1)) else {
            continue;
        };
        if !namespace.has_cache() || mutation::active(Mutation::FlushNotDone) {
            continue;
        }
        if !namespace.is_open() && !entry.accounting.in_flight {
            entry.parts.next -= 1;
            paused = Some(nsid);
            break;
        }
        return Step::Submit(nsid, part(ticket, Operation::Flush, 0, 0));
    }
    match paused {
        _ if entry.parts.outstanding > 0 => Step::Wait,
        Some(nsid) => Step::WaitForNamespace(nsid),
        None => Step::Answer(entry.status.unwrap_or(Status::SUCCESS)),
    }
}
