//! How a core pays its commands' tokens, and what a change of tenants comes to.

use crate::command::tokens;
use crate::request::{Phase, Ticket};
use crate::service::PollGroup;
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

    /// The target ends: nobody waits for tokens any more.
    pub(super) fn stop_scheduling(&mut self, cx: &mut Context<'_>) {
        self.core.unscheduled = true;
        for ticket in self.core.tokens.drain() {
            self.paid(ticket, cx);
        }
    }

    /// Every connection takes the seats that it has by what is now in force.
    pub(super) fn reseat(&mut self) {
        for (_, connection) in self.connections.iter_mut() {
            connection.reseat(&mut self.core);
        }
    }

    fn paid(&mut self, ticket: Ticket, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return;
        };
        let waits = connection.qpair.get(ticket.slot);
        if waits.is_some_and(|entry| entry.phase == Phase::WaitingForTokens) {
            tokens::paid(connection, ticket.slot, &mut self.core, cx);
        }
    }
}
