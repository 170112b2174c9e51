//! Rounds of the token schedulers, and the token queues of all connections.

use crate::request::{CommandState, Ticket};
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use reactor::Context;

impl PollGroup {
    /// Gives every scheduler its round, and lets go on what is paid.
    pub(super) fn run_tokens(&mut self, cx: &mut Context<'_>) {
        self.core.tokens.round(cx.now);
        while let Some(ticket) = self.core.tokens.released() {
            self.core.work.bring();
            self.paid(ticket, cx);
        }
    }

    /// The target ends: no command waits for tokens any more.
    pub(super) fn stop_scheduling(&mut self, cx: &mut Context<'_>) {
        self.core.unscheduled = true;
        for ticket in self.core.tokens.drain() {
            self.paid(ticket, cx);
        }
    }

    /// Every connection is assigned its token queues by what is now in force.
    pub(super) fn assign_token_queues(&mut self) {
        for (_, connection) in self.connections.iter_mut() {
            connection.assign_token_queues(&mut self.core);
        }
    }

    fn paid(&mut self, ticket: Ticket, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return;
        };
        let waits = connection.session.commands.get(ticket.slot);
        if waits.is_some_and(|entry| entry.state() == CommandState::WaitingForTokens) {
            requests::paid(connection, ticket.slot, &mut self.core, cx);
        }
    }
}
