//! The end of a core: commands under way are answered, connections close, channels close.

use crate::controller::registry::ConnectionPlace;
use crate::service::connection::Connection;
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::PollGroup;
use base::{Nanos, SlabKey};
use reactor::Context;
use std::sync::atomic::Ordering;
use wire::nvme::opcode::AdminOpcode;

/// From the end of the time to drain, when connections are closed, until what is still in a device
/// is given up: sockets close in microseconds, and a device had the whole drain time already.
const GIVE_UP_TIME: Nanos = Nanos::from_secs(1);

impl PollGroup {
    pub(super) fn shut_down(&mut self, cx: &mut Context<'_>) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.drain_deadline = cx.now + self.core.limits.drain_timeout;
        for listener in self.listeners.drain(..) {
            cx.driver.close_listener(listener);
        }
        self.stop_scheduling(cx);
        for (_, connection) in self.connections.iter_mut() {
            connection.drain(&mut self.core, cx);
        }
    }

    /// Looks whether draining connections have nothing left to answer.
    pub(super) fn run_drain(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(&key) = self.core.connections.draining.get(index) {
            let connection = self.connections.get_mut(key);
            let connection =
                connection.filter(|connection| connection.state() == ConnectionState::Draining);
            if let Some(connection) = connection {
                connection.drained(&mut self.core, cx);
                index += 1;
            } else {
                self.core.connections.draining.swap_remove(index);
            }
        }
        if !self.draining {
            return;
        }
        if cx.now >= self.drain_deadline && !self.gave_up {
            self.out_of_time(cx);
        }
        if self.connections.is_empty() {
            let subsystems = std::mem::take(&mut self.core.namespaces.subsystems);
            let namespaces = subsystems.into_iter().flatten().flat_map(|s| s.namespaces);
            for namespace in namespaces.flatten() {
                self.core.namespaces.close(namespace.channel, cx);
            }
        }
    }

    /// The time to drain is over: first every connection is closed, then, a moment later, what a
    /// device still has is given up. Its hosts were never told that it was done.
    pub(super) fn out_of_time(&mut self, cx: &mut Context<'_>) {
        let open = |connection: &Connection| connection.state() < ConnectionState::Closing;
        let commands: u32 = self
            .connections
            .iter()
            .map(|(_, c)| c.session.commands.used())
            .sum();
        if commands > 0 {
            self.core.shared.gave_up.store(true, Ordering::Relaxed);
        }
        if self
            .connections
            .iter()
            .any(|(_, connection)| open(connection))
        {
            for (_, connection) in self.connections.iter_mut() {
                connection.close(&mut self.core, cx);
            }
            self.drain_deadline = cx.now + GIVE_UP_TIME;
            return;
        }
        tracing::error!(
            commands,
            "ending although a device has not answered: these commands may or may not be done"
        );
        self.gave_up = true;
    }

    pub(super) fn stream_closed(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection
            .session
            .commands
            .awaits(AdminOpcode::END_CONTROLLER)
        {
            let place = ConnectionPlace {
                core: self.core.index,
                connection: key,
            };
            for controller in self.core.shared.controllers().iter() {
                controller.forget_waiting(place);
            }
        }
        connection.closed(&mut self.core);
        self.withdraw(key, cx);
        self.reclaim(key, cx);
    }
}
