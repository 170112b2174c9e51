//! Removals of namespaces and revocations of rights, until nothing of them is left on the core.
//!
//! The answer to a read of device memory points into it until it is sent. A change that takes the
//! memory away from the host waits for such answers as for commands in flight, and closes the
//! connections of hosts that do not read theirs in time: the memory may be another host's next.

use crate::change::ack::Pausing;
use crate::change::withdrawal::{Holder, Withdrawal};
use crate::namespace::{CoreNamespace, Gate};
use crate::service::connection::Connection;
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::poll_group::PollGroup;
use base::mutation::{self, Mutation};
use base::{SlabKey, Time};
use block::Direct;
use reactor::Context;

/// Returns true while answers of a connection that point into the memory of a namespace (`None` for
/// any) are not sent.
fn holds(
    holder: &mut Holder,
    nsid: Option<u32>,
    connection: &mut Connection,
    core: &mut CoreState,
) -> bool {
    if connection.state() == ConnectionState::Closed {
        return false;
    }
    let session = &mut connection.session;
    if holder.mark.is_none() && !session.commands.has_unsent_data(nsid) {
        holder.mark = session.output.leave_soon(&mut core.sends());
        if holder.mark.is_none() {
            return false;
        }
    }
    !holder
        .mark
        .is_some_and(|mark| session.output.has_left(mark))
}

impl PollGroup {
    /// Removes a namespace as soon as nothing of it is in flight and no answer points into its
    /// memory. Its gate is closed until then.
    pub(super) fn remove_namespace(
        &mut self,
        subsystem: u32,
        nsid: u32,
        debt: &mut Option<Pausing>,
        cx: &mut Context<'_>,
    ) {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        let debt = match std::mem::replace(&mut namespace.gate, Gate::Paused) {
            Gate::Pausing { debt } => Some(debt),
            Gate::Open | Gate::Paused => debt.take(),
        };
        let mut holders = Vec::new();
        if has_memory(namespace) {
            let all = self.connections.iter();
            let theirs = all.filter(|(_, connection)| connection.access.subsystem == subsystem);
            holders.extend(theirs.map(|(connection, _)| Holder {
                connection,
                mark: None,
            }));
        }
        let removes = Some((subsystem, nsid));
        self.withdraw_memory(removes, holders, debt, cx);
    }

    /// Waits for the answers of connections that have lost rights.
    pub(super) fn revoke(
        &mut self,
        connections: impl Iterator<Item = SlabKey>,
        debt: &mut Option<Pausing>,
        cx: &mut Context<'_>,
    ) {
        let holders: Vec<_> = connections
            .map(|connection| Holder {
                connection,
                mark: None,
            })
            .collect();
        if !holders.is_empty() {
            self.withdraw_memory(None, holders, debt.take(), cx);
        }
    }

    fn withdraw_memory(
        &mut self,
        removes: Option<(u32, u32)>,
        holders: Vec<Holder>,
        debt: Option<Pausing>,
        cx: &mut Context<'_>,
    ) {
        self.withdrawals.push(Withdrawal {
            removes,
            holders,
            until: cx.now + self.core.limits.pause_patience,
            _debt: debt,
        });
        self.run_withdrawals(cx);
    }

    /// Returns true if a namespace of a connection's subsystem is memory that answers point into.
    pub(super) fn has_memory(core: &CoreState, connection: &Connection) -> bool {
        let mut namespaces = core.namespaces.of(connection.access.subsystem).iter();
        namespaces.any(|namespace| namespace.as_ref().is_some_and(has_memory))
    }

    /// Ends the removals and revocations that wait for nothing any more, in order.
    pub(super) fn run_withdrawals(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(withdrawal) = self.withdrawals.get_mut(index) {
            let nsid = withdrawal.removes.map(|(_, nsid)| nsid);
            let (core, connections) = (&mut self.core, &mut self.connections);
            let is_late = cx.now >= withdrawal.until;
            withdrawal.holders.retain_mut(|holder| {
                let Some(connection) = connections.get_mut(holder.connection) else {
                    return false;
                };
                let holds = holds(holder, nsid, connection, core);
                if holds && is_late {
                    connection.close_unread(core, cx);
                }
                holds
            });
            if is_late {
                withdrawal.until = Time::NEVER;
            }
            let quiet = withdrawal.removes.is_none_or(|(subsystem, nsid)| {
                let namespace = self.core.namespace_ref(subsystem, nsid);
                namespace.is_none_or(CoreNamespace::is_quiet)
                    || mutation::active(Mutation::UndoForgetsCommands)
            });
            if !withdrawal.holders.is_empty() || !quiet {
                index += 1;
                continue;
            }
            let withdrawal = self.withdrawals.remove(index);
            if let Some((subsystem, nsid)) = withdrawal.removes {
                self.forget_namespace(subsystem, nsid, cx);
            }
        }
    }

    /// Returns the time of the next look at connections that do not read.
    pub(super) fn withdrawal_deadline(&self) -> Time {
        let times = self.withdrawals.iter().map(|withdrawal| withdrawal.until);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Forgets a namespace of which nothing is in flight.
    fn forget_namespace(&mut self, subsystem: u32, nsid: u32, cx: &mut Context<'_>) {
        let slot = self.core.namespaces.subsystems.get_mut(subsystem as usize);
        let namespaces = slot.and_then(Option::as_mut).map(|s| &mut s.namespaces);
        let namespace = namespaces.and_then(|all| all.get_mut(nsid as usize - 1)?.take());
        let Some(removed) = namespace else {
            return;
        };
        self.assign_token_queues();
        if let Some(scheduler) = removed.scheduler {
            self.core.tokens.close(scheduler);
        }
        self.core.namespaces.close(removed.channel, cx);
        self.core.waiters.released.extend(removed.waiting);
    }
}

/// Returns true if answers to reads of a namespace may point into its memory.
fn has_memory(namespace: &CoreNamespace) -> bool {
    matches!(namespace.direct, Some(Direct::Linear(_)))
}
