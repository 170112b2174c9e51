//! Barriers on a core: looks for commands that came before one, reports when they are through, and
//! releases those that followed.

use crate::barrier::core::{Due, HeldCommand, Search};
use crate::barrier::registry::{Barrier, Scope};
use crate::message::CoreMessage;
use crate::request::{CommandKind, CommandState, Slot};
use crate::service::connection::Connection;
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use reactor::Context;
use std::sync::Arc;
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

/// Places of commands that a turn looks at for barriers: however many commands a tenant has, a turn is
/// not much longer.
const LOOKS_A_TURN: usize = 1024;

/// Commands that wait for barriers keep at most one part of so many of a core's buffers.
const HELD_PART: usize = 4;

impl PollGroup {
    /// A barrier is in force: everything of its tenant that is here, and not held, came before it.
    pub(super) fn take_barrier(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        if let Some(stale) = self.core.barriers.in_force(&barrier.scope) {
            // That it had ended was lost on the way.
            self.barrier_ended(&stale, cx);
        }
        let patience = self.core.limits.barrier_timeout;
        self.core.barriers.take(barrier, patience, cx.now);
    }

    /// Ends a barrier of this core: all earlier commands are through on all cores.
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
            end(connection, &own, status, &mut self.core, cx);
            self.reclaim(key, cx);
        }
        self.core.shared.end_barrier(&own);
        self.run_held(&own.scope, cx);
    }

    /// A barrier is not in force any more.
    pub(super) fn barrier_ended(&mut self, barrier: &Arc<Barrier>, cx: &mut Context<'_>) {
        self.core.barriers.end(barrier);
        self.run_held(&barrier.scope, cx);
    }

    /// Lets go on what a tenant's barriers do not hold any more, up to the next barrier.
    fn run_held(&mut self, scope: &Arc<Scope>, cx: &mut Context<'_>) {
        while let Some(held) = self.core.barriers.next_free(scope) {
            if let Some(connection) = self.connections.get_mut(held.ticket.connection) {
                release(connection, held, scope, &mut self.core, cx);
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
        let looks = (LOOKS_A_TURN / due.len().max(1)).max(1);
        for due in due {
            match due {
                Due::GiveUp(barrier) => self.give_up_barrier(&barrier, cx),
                Due::Overflow(barrier) => self.barrier_overflows(&barrier, cx),
                Due::Tell(barrier) => {
                    let note = CoreMessage::GiveUpBarrier(Arc::clone(&barrier));
                    self.core.shared.deliver(barrier.owner, note);
                }
                Due::Forget(barrier) => {
                    if let Some(suppressed) = self.core.log_budget.allow(barrier.from, cx.now) {
                        tracing::error!(
                            suppressed,
                            "a barrier was not ended in time: this core goes on"
                        );
                    }
                    self.barrier_ended(&barrier, cx);
                }
                Due::Search(barrier) => {
                    self.search(&barrier, looks);
                    self.look_at_unsent(&barrier);
                }
                Due::LookAtUnsent(barrier) => self.look_at_unsent(&barrier),
            }
        }
    }

    /// Looks for commands that came before a barrier, at so many places.
    fn search(&mut self, barrier: &Arc<Barrier>, mut looks: usize) {
        while looks > 0
            && let Some((key, from, epoch)) = self.core.barriers.search_at(barrier)
        {
            let Some(connection) = self.connections.get_mut(key) else {
                self.core.barriers.searched_queue(barrier, key, None);
                looks -= 1;
                continue;
            };
            let (search, looked) = look(connection, &barrier.scope, epoch, (from, looks));
            looks = looks.saturating_sub(looked);
            if let Some(search) = search {
                self.core.barriers.searched(barrier, search);
            } else {
                let unsent = unsent(connection, &mut self.core);
                self.core.barriers.searched_queue(barrier, key, unsent);
            }
        }
    }

    fn look_at_unsent(&mut self, barrier: &Arc<Barrier>) {
        let Self {
            core, connections, ..
        } = self;
        let has_left = |key, mark| {
            let connection = connections.get_mut(key);
            connection.is_none_or(|c| {
                c.state() >= ConnectionState::Closing || c.session.output.has_left(mark)
            })
        };
        if !core.barriers.all_sent(barrier, has_left) || !barrier.core_is_through() {
            return;
        }
        let note = CoreMessage::BarrierThrough(Arc::clone(barrier));
        core.shared.deliver(barrier.owner, note);
    }
}

/// A barrier that nothing holds waits its turn among its tenant's; another one waits until it is
/// released.
pub(crate) fn enter(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    entry.enter(CommandState::WaitingForBarrier, &mut core.states);
    hold(connection, slot, 0, None, core, cx);
    if connection.session.commands.slot(slot).order.held == 0 {
        begin(connection, slot, core, cx);
    }
}

/// Begins a barrier that nothing holds any longer.
fn begin(connection: &mut Connection, slot: u16, core: &mut CoreState, cx: &mut Context<'_>) {
    let ticket = connection.ticket(slot);
    let nsid = connection.session.commands.slot(slot).nsid;
    let scopes = connection.access.scopes.as_ref();
    let Some(scope) = scopes.and_then(|scopes| scopes.scope(nsid)) else {
        let denied = Status::ACCESS_DENIED.with_dnr();
        return requests::finish(connection, slot, denied, core, cx);
    };
    if core.unscheduled {
        // The target ends, and some of its cores have ended already.
        let interrupted = Status::COMMAND_INTERRUPTED;
        return requests::finish(connection, slot, interrupted, core, cx);
    }
    let cores = core.shared.cores().len();
    let from = connection.peer.ip();
    let barrier = Barrier::new(scope, core.index, ticket, from, cores);
    let until = cx.now + core.limits.barrier_timeout;
    core.barriers.own(&barrier, until);
    if !core.shared.begin_barrier(&barrier) {
        core.stats.barriers_put_off += 1;
    }
}

/// A command has come, and takes `bytes` of buffers: holds it, if a barrier concerns it.
#[inline]
pub(crate) fn arrive(
    connection: &mut Connection,
    slot: u16,
    bytes: u32,
    core: &mut CoreState,
    cx: &Context<'_>,
) {
    if !core.barriers.is_idle() {
        hold(connection, slot, bytes, None, core, cx);
    }
}

/// Holds a command if one of its scopes has a barrier, other than the scope that releases it.
#[cold]
fn hold(
    connection: &mut Connection,
    slot: u16,
    bytes: u32,
    released_by: Option<&Scope>,
    core: &mut CoreState,
    cx: &Context<'_>,
) {
    let ticket = connection.ticket(slot);
    let Some(scopes) = &connection.access.scopes else {
        return;
    };
    let entry = connection.session.commands.slot(slot);
    let everywhere = (entry.nsid == NSID_BROADCAST).then(|| scopes.iter());
    let here = scopes.scope(entry.nsid);
    let here = here.filter(|_| entry.nsid != NSID_BROADCAST);
    let concerned = everywhere.into_iter().flatten().chain(here);
    let concerned = concerned.filter(|scope| released_by.is_none_or(|other| ***scope != *other));
    // What came before the barrier finds buffers beside those of what it holds.
    let most = cx.driver.buffers().bytes().0 / HELD_PART;
    let most = core.limits.barrier_held_bytes.min(most);
    if let Some(number) = core.barriers.wait(concerned, ticket, bytes, most) {
        entry.order.held = number;
        core.stats.barrier_waits += 1;
    }
}

/// Releases a command that was held for a scope; a barrier holds later commands from then on.
fn release(
    connection: &mut Connection,
    held: HeldCommand,
    scope: &Scope,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let HeldCommand { ticket, number, .. } = held;
    let waits = connection.session.commands.get(ticket.slot);
    let Some(entry) = waits.filter(|entry| entry.order.held == number) else {
        return;
    };
    entry.order.held = 0;
    let (kind, bytes) = (entry.kind, entry.transfer.held_bytes);
    // It may be of several tenants, or of another one by now.
    hold(connection, ticket.slot, bytes, Some(scope), core, cx);
    let entry = connection.session.commands.slot(ticket.slot);
    if entry.order.held != 0 {
        return;
    }
    if kind == CommandKind::Barrier {
        begin(connection, ticket.slot, core, cx);
    } else if entry.state() == CommandState::WaitingForBarrier {
        // As a command of a namespace that was paused, and is open again.
        entry.enter(CommandState::WaitingForNamespace, &mut core.states);
        core.waiters.released.push_back(ticket);
    }
}

/// Answers a barrier that is over.
fn end(
    connection: &mut Connection,
    barrier: &Barrier,
    status: Status,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let slot = barrier.ticket.slot;
    let waits = connection.session.commands.get(slot);
    if waits.is_some_and(|entry| entry.kind == CommandKind::Barrier && entry.order.held == 0) {
        requests::finish(connection, slot, status, core, cx);
    }
}

/// Looks at so many places of a queue, from a slot on, for a command of a scope that came up to an
/// epoch. Returns the place at which the search waits or goes on, `None` where the queue has no such
/// command, and the number of places.
fn look(
    connection: &Connection,
    scope: &Arc<Scope>,
    epoch: u32,
    (from, looks): (u16, usize),
) -> (Option<Search>, usize) {
    let scopes = connection.access.scopes.as_deref();
    let concerned = |nsid| match nsid {
        NSID_BROADCAST => scopes.is_some_and(|scopes| scopes.iter().any(|other| other == scope)),
        nsid => scopes.and_then(|scopes| scopes.scope(nsid)) == Some(scope),
    };
    // One that is held when a barrier comes into force stays so until that is over.
    let came_before = |entry: &Slot| {
        entry.order.held == 0
            && epoch.wrapping_sub(entry.order.epoch) < u32::MAX / 2
            && !matches!(entry.kind, CommandKind::Barrier | CommandKind::Admin)
            && concerned(entry.nsid)
    };
    let commands = &connection.session.commands;
    let end = commands.places();
    let until = end.min(from.saturating_add(u16::try_from(looks).unwrap_or(u16::MAX)));
    let found = commands.find_in(from..until, came_before);
    let looked = 1 + usize::from(found.unwrap_or(until).saturating_sub(from));
    let search = match found {
        Some(slot) => Some(Search::WaitsFor(connection.ticket(slot))),
        None => (until < end).then_some(Search::At(connection.key, until)),
    };
    (search, looked)
}

/// Returns the send that takes the last answer of a queue, where it may still have to send data out of
/// the memory of devices: the next write there would change it.
fn unsent(connection: &mut Connection, core: &mut CoreState) -> Option<u64> {
    let namespaces = core.namespaces.of(connection.access.subsystem);
    let mut namespaces = namespaces.iter().flatten();
    if namespaces.any(|namespace| namespace.direct.is_some()) {
        connection.session.output.leave_soon(&mut core.sends())
    } else {
        None
    }
}
