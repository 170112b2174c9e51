//! Prioritised processing of what a core sends in a turn. `[blk-switch §3.1]`
//!
//! While `Latency` work is active, a turn sends all that is ready of it, and then a quantum of what
//! may wait, at the most: input that arrives meanwhile is looked at before the next one. Otherwise
//! everything that is ready leaves in the order in which it became so.

use crate::service::answers;
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::PollGroup;
use base::SlabKey;
use reactor::Context;
use switch::{Class, PerClass};

impl PollGroup {
    /// Sends what is ready.
    pub(super) fn run_output(&mut self, cx: &mut Context<'_>) {
        self.run_doorbells(cx);
        // A connection that becomes ready meanwhile is looked at next turn.
        let mut left = PerClass::from_fn(|class| self.core.switch.ready[class].len());
        if !self.core.switch.prioritises(cx.now) {
            for class in Class::ALL {
                while self.next_ready(class, &mut left, cx).is_some() {}
            }
            return;
        }
        loop {
            // A class is owed something only where both wait: otherwise the time does not matter.
            let all_wait = left.iter().all(|(_, &count)| count > 0);
            let now = if all_wait { cx.driver.now() } else { cx.now };
            let backlog = left.map(|count| if count > 0 { u64::MAX } else { 0 });
            let Some(grant) = self.core.switch.send.next(now, &backlog) else {
                return;
            };
            let mut bytes = 0;
            while bytes < grant.bytes
                && let Some(sent) = self.next_ready(grant.class, &mut left, cx)
            {
                bytes += sent;
            }
            let now = if all_wait { cx.driver.now() } else { now };
            self.core.switch.send.served(now, bytes);
            if grant.class.properties().may_wait {
                self.core.switch.note_bulk(bytes);
                if !grant.by_floor {
                    return;
                }
            }
        }
    }

    /// Sends on the next connection of a class. Returns how many bytes.
    fn next_ready(
        &mut self,
        class: Class,
        left: &mut PerClass<usize>,
        cx: &mut Context<'_>,
    ) -> Option<u64> {
        left[class] = left[class].checked_sub(1)?;
        let key = self.core.switch.ready[class].pop_front()?;
        Some(self.send_on(key, cx))
    }

    /// Sends what was gathered on one connection. Returns how many bytes.
    fn send_on(&mut self, key: SlabKey, cx: &mut Context<'_>) -> u64 {
        let Some(connection) = self.connections.get_mut(key) else {
            return 0;
        };
        connection.session.output.unmark();
        if connection.state() >= ConnectionState::Closing {
            return 0;
        }
        if !connection.session.output.waiting.is_empty() {
            answers::resume(connection, &mut self.core, cx);
        }
        let bytes = connection.session.output.flush(&mut self.core.sends(), cx);
        if connection.session.output.lacks_list() {
            connection
                .session
                .output
                .wait_for_list(&mut self.core.sends());
        }
        if connection.session.output.is_sending() {
            let since = connection.session.output.pace().slow_since();
            let deadline = since + self.core.limits.stall_timeout;
            connection.arm(&mut self.core, deadline);
        }
        bytes as u64
    }

    /// Rings the doorbells that are due.
    fn run_doorbells(&mut self, cx: &Context<'_>) {
        while let Some(key) = self.core.switch.held.pop_due(cx.now) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection
                    .session
                    .output
                    .look_at_doorbell(&mut self.core.sends(), cx.now);
            }
        }
    }
}
