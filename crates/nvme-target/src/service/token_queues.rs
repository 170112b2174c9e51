//! The token queues of a connection: one in each namespace that is scheduled.
//!
//! Assigned at Connect and on arrival from another core, assigned anew when tenants or namespaces
//! change, released when the socket is gone. Control path: asks the rules, asks devices, allocates.
//! Must never: leave a token queue, or a command that waits in it, behind a connection that is gone.

use crate::qos::core::TokenQueue;
use crate::request::{CommandState, Ticket};
use crate::service::connection::Connection;
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use std::collections::{BTreeMap, BTreeSet};

impl Connection {
    /// Assigns the token queues that the host has by the rules now in force. A command that waits in
    /// a queue which is not its own any more passes its gates once more.
    pub(crate) fn assign_token_queues(&mut self, core: &mut CoreState) {
        if self.state() == ConnectionState::Closed {
            return;
        }
        let before = std::mem::take(&mut self.access.token_queues);
        let scheduled = core.scheduled(self.access.subsystem);
        let controller = self.controller().filter(|_| !scheduled.is_empty());
        if let Some(tenants) = controller.map(|c| c.tenants(&core.shared.rules())) {
            for (nsid, scheduler) in scheduled {
                let tenant = tenants.tenant(nsid);
                let queue = tenant.and_then(|tenant| core.tokens.attach(scheduler, tenant));
                self.access.token_queues.resize(nsid as usize, None);
                self.access.token_queues[nsid as usize - 1] = queue;
            }
        }
        let kept = |nsid: u32, queue| self.token_queue(nsid) == Some(queue);
        let left: BTreeSet<TokenQueue> = (1..)
            .zip(&before)
            .filter_map(|(nsid, queue)| queue.filter(|&queue| !kept(nsid, queue)))
            .collect();
        for ticket in self.withdraw_from(&left, &before, core) {
            // As a command of a namespace that was paused, and is open again.
            let entry = self.session.commands.slot(ticket.slot);
            entry.enter(CommandState::WaitingForNamespace, &mut core.states);
            core.waiters.released.push_back(ticket);
        }
        for queue in before.into_iter().flatten() {
            core.tokens.detach(queue);
        }
    }

    /// The connection is gone: none of its commands waits for tokens any more.
    pub(crate) fn release_token_queues(&mut self, core: &mut CoreState) {
        let queues = std::mem::take(&mut self.access.token_queues);
        let left = queues.iter().copied().flatten().collect();
        self.withdraw_from(&left, &queues, core);
        for queue in queues.into_iter().flatten() {
            core.tokens.detach(queue);
        }
    }

    /// Takes out the connection's commands that wait in the queues `left`, of those that it `had`.
    fn withdraw_from(
        &mut self,
        left: &BTreeSet<TokenQueue>,
        had: &[Option<TokenQueue>],
        core: &mut CoreState,
    ) -> Vec<Ticket> {
        let mut waiting: BTreeMap<TokenQueue, Vec<(u32, Ticket)>> = BTreeMap::new();
        for slot in self.session.commands.occupied() {
            let ticket = self.ticket(slot);
            let entry = self.session.commands.slot(slot);
            if entry.state() != CommandState::WaitingForTokens {
                continue;
            }
            let queue = had.get(entry.paying_namespace() as usize - 1);
            if let Some(queue) = queue
                .copied()
                .flatten()
                .filter(|queue| left.contains(queue))
            {
                let commands = waiting.entry(queue).or_default();
                commands.push((entry.order.line, ticket));
            }
        }
        let mut taken = Vec::new();
        for (queue, mut commands) in waiting {
            core.tokens.withdraw_all(queue, &mut commands, &mut taken);
        }
        taken
    }
}
