//! What a core does about barriers: marks what came before one, says when that is through, and lets
//! go on what followed.

use crate::barrier::core::Due;
use crate::barrier::registry::{Barrier, Scope};
use crate::command::barrier;
use crate::message::Note;
use crate::request::Kind;
use crate::service::PollGroup;
use crate::session::connection::{Connection, State};
use base::SlabKey;
use reactor::Context;
use std::sync::Arc;
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

impl PollGroup {
    /// A barrier is in force: everything of its tenant that is here came before it.
    pub(super) fn take_barrier(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        if let Some(stale) = self.core.barriers.in_force(&barrier.scope) {
            // That it had ended was lost on the way.
            self.barrier_ended(&stale, cx);
        }
        let patience = self.core.limits.barrier_timeout;
        let Some(bit) = self.core.barriers.take(barrier, patience, cx.now) else {
            tracing::error!("a core has no place for a barrier, which will time out");
            return;
        };
        let mut count = 0;
        for key in self.core.barriers.members(&barrier.scope) {
            if let Some(connection) = self.connections.get_mut(key) {
                count += mark(connection, &barrier.scope, bit);
            }
        }
        self.core.barriers.marked(barrier, count);
    }

    /// What came before a barrier of this core's is through on all cores.
    pub(super) fn barrier_through(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        self.end_own_barrier(barrier, Status::SUCCESS, cx);
    }

    /// A barrier of this core's holds too much, here or elsewhere.
    pub(super) fn barrier_overflows(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        self.core.stats.barriers_overflowed += 1;
        self.give_up_barrier(barrier, cx);
    }

    /// A barrier of this core's fails.
    fn give_up_barrier(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        self.core.stats.barriers_given_up += 1;
        self.core.touch();
        self.end_own_barrier(barrier, Status::COMMAND_INTERRUPTED.with_dnr(), cx);
    }

    /// Ends every barrier of this core's: tenants change, or the target ends.
    pub(super) fn interrupt_barriers(&mut self, cx: &mut Context<'_>) {
        for barrier in self.core.barriers.owned() {
            self.end_own_barrier(&barrier, Status::COMMAND_INTERRUPTED, cx);
        }
    }

    fn end_own_barrier(&mut self, ended: &Arc<Barrier>, status: Status, cx: &mut Context<'_>) {
        let Some(own) = self.core.barriers.disown(ended.ticket) else {
            return;
        };
        if !Arc::ptr_eq(&own, ended) {
            // Its command is gone, and another barrier in its place.
            let until = cx.now + self.core.limits.barrier_timeout;
            self.core.barriers.own(&own, until);
            return;
        }
        let key = own.ticket.connection;
        if let Some(connection) = self.connections.get_mut(key) {
            barrier::end(connection, &own, status, &mut self.core, cx);
            self.reclaim(key, cx);
        }
        self.core.shared.end_barrier(&own);
        self.run_held(&own.scope, cx);
    }

    /// A barrier is not in force any more.
    pub(super) fn barrier_ended(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        if let Some(bit) = self.core.barriers.end(barrier) {
            for key in self.core.barriers.members(&barrier.scope) {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.qpair.unmark(bit);
                }
            }
        }
        self.run_held(&barrier.scope, cx);
    }

    /// Lets go on what a tenant's barriers do not hold any more, up to the next barrier.
    fn run_held(&mut self, scope: &Arc<Scope>, cx: &mut Context<'_>) {
        while let Some(held) = self.core.barriers.next_free(scope) {
            if let Some(connection) = self.connections.get_mut(held.ticket.connection) {
                barrier::release(connection, held, scope, &mut self.core, cx);
            }
        }
    }

    /// Moves barriers along.
    pub(super) fn run_barriers(&mut self, cx: &mut Context<'_>) {
        if self.core.barriers.is_idle() {
            return;
        }
        let mut due = Vec::new();
        self.core.barriers.due(cx.now, &mut due);
        for due in due {
            match due {
                Due::GiveUp(barrier) => self.give_up_barrier(&barrier, cx),
                Due::Overflow(barrier) => self.barrier_overflows(&barrier, cx),
                Due::Tell(barrier) => {
                    let note = Note::GiveUpBarrier(Arc::clone(&barrier));
                    self.core.shared.deliver(barrier.owner, note);
                }
                Due::Forget(barrier) => {
                    tracing::error!("a barrier was not ended in time: this core goes on");
                    self.barrier_ended(&barrier, cx);
                }
                Due::ListUnsent(barrier) => {
                    let unsent = self.unsent(&barrier.scope);
                    self.core.barriers.list_unsent(&barrier, unsent);
                    self.look_at_unsent(&barrier);
                }
                Due::LookAtUnsent(barrier) => self.look_at_unsent(&barrier),
            }
        }
    }

    /// The queues of a tenant that still have to send what devices hold in their memory: whoever
    /// writes there next would change it.
    fn unsent(&mut self, scope: &Scope) -> Vec<(SlabKey, u64)> {
        let mut unsent = Vec::new();
        for key in self.core.barriers.members(scope) {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            let subsystem = self.core.subsystems.get(connection.subsystem as usize);
            let namespaces = subsystem.and_then(Option::as_ref);
            let mut namespaces = namespaces.into_iter().flat_map(|s| &s.namespaces).flatten();
            if namespaces.any(|namespace| namespace.direct.is_some())
                && let Some(mark) = connection.output.leave_soon(&mut self.core)
            {
                unsent.push((key, mark));
            }
        }
        unsent
    }

    fn look_at_unsent(&mut self, barrier: &Arc<Barrier>) {
        let Self {
            core, connections, ..
        } = self;
        let has_left = |key, mark| {
            let connection = connections.get_mut(key);
            connection.is_none_or(|c| c.state >= State::Closing || c.output.has_left(mark))
        };
        if !core.barriers.all_sent(barrier, has_left) || !barrier.core_is_through() {
            return;
        }
        let note = Note::BarrierThrough(Arc::clone(barrier));
        core.shared.deliver(barrier.owner, note);
    }
}

/// Marks the commands of a queue that are of a scope and do not wait for a barrier. How many.
fn mark(connection: &mut Connection, scope: &Arc<Scope>, bit: u64) -> u32 {
    let Some(scopes) = connection.scopes.clone() else {
        return 0;
    };
    let concerned = |nsid| match nsid {
        NSID_BROADCAST => scopes.iter().any(|other| other == scope),
        nsid => scopes.scope(nsid) == Some(scope),
    };
    let mut count = 0;
    for entry in connection.qpair.taken_mut() {
        let passes = entry.held == 0 && !matches!(entry.kind, Kind::Barrier | Kind::Admin);
        if passes && concerned(entry.nsid) {
            entry.marks |= bit;
            count += 1;
        }
    }
    count
}
