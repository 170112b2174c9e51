//! Commands and connections that wait for buffers, shares, send lists or a gate: each turn, some of
//! them try again.

use crate::command::step::Step;
use crate::request::{CommandState, Ticket};
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use crate::service::wait_lists::{INPUT, WaitsFor};
use reactor::Context;

/// Commands, and connections with input, that wait for a share and are asked in a turn whether they may
/// have it: however many wait, a turn is not much longer.
const WAITERS_A_TURN: usize = 64;

impl PollGroup {
    /// Lets those go on that waited for buffers, in the order of each size, then those that waited for
    /// shares, send lists or gates.
    pub(super) fn run_waiters(&mut self, cx: &mut Context<'_>) {
        if self.core.work.brings() {
            self.core.waiters.try_all();
        }
        let waiters = &mut self.core.waiters;
        waiters.untried = waiters.untried.saturating_sub(WAITERS_A_TURN);
        for list in WaitsFor::buffers() {
            for _ in 0..self.core.waiters.lists.len(list) {
                let Some(ticket) = self.core.waiters.lists.pop(list) else {
                    break;
                };
                self.core.waiters.first = true;
                let went_on = self.try_again(ticket, cx);
                let waiters = &mut self.core.waiters;
                waiters.first = false;
                if !went_on && waiters.lists.bring_forward(list, ticket) {
                    // Still none: all keep their places.
                    break;
                }
            }
        }
        self.run_share_waiters(cx);
        self.run_list_waiters();
        while let Some(ticket) = self.core.waiters.released.pop_front() {
            let Some(connection) = self.connections.get_mut(ticket.connection) else {
                continue;
            };
            let waits = connection.session.commands.get(ticket.slot);
            if waits.is_some_and(|entry| entry.state() == CommandState::WaitingForNamespace) {
                requests::resume(connection, ticket.slot, &mut self.core, cx);
            }
        }
    }

    /// Lets some of those go on that waited for a share, which may be free by now.
    fn run_share_waiters(&mut self, cx: &mut Context<'_>) {
        let waiting = self.core.waiters.lists.len(WaitsFor::SHARE);
        for _ in 0..waiting.min(WAITERS_A_TURN) {
            let Some(ticket) = self.core.waiters.lists.pop(WaitsFor::SHARE) else {
                break;
            };
            let went_on = self.try_again(ticket, cx);
            let waiters = &mut self.core.waiters;
            if went_on || !waiters.lists.is_last(WaitsFor::SHARE, ticket) {
                waiters.try_all();
            }
        }
    }

    /// Lets a command, or input, try again that has just left its list: if it has to wait again, it is
    /// the last of a list. Returns true for input that went on, which may be the last of a list because
    /// of its next command.
    fn try_again(&mut self, ticket: Ticket, cx: &mut Context<'_>) -> bool {
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return false;
        };
        if ticket.slot == INPUT {
            return connection.resume_input(&mut self.core, cx);
        }
        let Some(entry) = connection.session.commands.get(ticket.slot) else {
            return false;
        };
        debug_assert_eq!(
            entry.state(),
            CommandState::WaitingForBuffer,
            "it was in the line"
        );
        entry.order.waits = 0;
        requests::advance(connection, ticket.slot, Step::Prepare, &mut self.core, cx);
        false
    }

    /// Lets some of those try again that have no list for what they are to send, where one came
    /// back.
    fn run_list_waiters(&mut self) {
        let core = &mut self.core;
        for _ in 0..WAITERS_A_TURN {
            let Some((class, key)) = core.lists.next_to_try() else {
                break;
            };
            core.switch.push_ready(class, key);
        }
    }
}
