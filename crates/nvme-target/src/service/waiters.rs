//! Commands and connections that wait for buffers, shares, send lists or a gate: each turn, some of
//! them try again.

use crate::command::step::Step;
use crate::request::{CommandState, Ticket};
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use crate::service::wait_lists::WaitsFor;
use reactor::Context;

/// Commands that are asked in a turn whether they may have a buffer: however many wait, a turn is
/// not much longer.
const WAITERS_A_TURN: usize = 64;

impl PollGroup {
    /// Lets those go on that waited for a buffer: first input, which holds up all that follows it,
    /// then commands.
    pub(super) fn run_waiters(&mut self, cx: &mut Context<'_>) {
        if self.core.work.brings() {
            self.core.waiters.try_all();
        }
        let waiters = &mut self.core.waiters;
        waiters.untried = waiters.untried.saturating_sub(WAITERS_A_TURN);
        // One that waits for its own share does not keep others from theirs.
        for _ in 0..self.core.waiters.input.len().min(WAITERS_A_TURN) {
            let Some(key) = self.core.waiters.input.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if connection.resume_input(&mut self.core, cx) {
                self.reclaim(key, cx);
                self.core.waiters.try_all();
            } else {
                self.core.waiters.input.push_back(key);
            }
        }
        for _ in 0..self.core.waiters.commands.len(WaitsFor::Buffer) {
            let Some(ticket) = self.core.waiters.commands.pop(WaitsFor::Buffer) else {
                break;
            };
            self.try_again(ticket, cx);
            let commands = &mut self.core.waiters.commands;
            if commands.bring_forward(WaitsFor::Buffer, ticket) {
                // Still none: all keep their places.
                break;
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
        let waiting = self.core.waiters.commands.len(WaitsFor::Share);
        for _ in 0..waiting.min(WAITERS_A_TURN) {
            let Some(ticket) = self.core.waiters.commands.pop(WaitsFor::Share) else {
                break;
            };
            self.try_again(ticket, cx);
            let waiters = &mut self.core.waiters;
            if !waiters.commands.is_last(WaitsFor::Share, ticket) {
                waiters.try_all();
            }
        }
    }

    /// Lets a command try again that has just left the line: if it has to wait again, it is the last
    /// there.
    fn try_again(&mut self, ticket: Ticket, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return;
        };
        let Some(entry) = connection.session.commands.get(ticket.slot) else {
            return;
        };
        debug_assert_eq!(
            entry.state(),
            CommandState::WaitingForBuffer,
            "it was in the line"
        );
        entry.order.waits = 0;
        requests::advance(connection, ticket.slot, Step::Prepare, &mut self.core, cx);
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
