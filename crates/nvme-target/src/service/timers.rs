//! Deadlines for the progress of hosts, and the handling of hosts that miss them.

use crate::controller::state::Controller;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::poll_group::PollGroup;
use crate::stats::CoreStats;
use base::Time;
use reactor::Context;

impl Connection {
    /// Makes sure that the timer fires at `deadline` or before.
    pub(crate) fn arm(&mut self, core: &mut CoreState, deadline: Time) {
        if deadline < self.deadlines.timer {
            self.deadlines.timer = deadline;
            core.connections.timers.set(deadline, self.key);
        }
    }

    /// Returns the deadlines for data that the host has to send.
    fn input_deadlines(&mut self, core: &CoreState, now: Time) -> [(Time, Late); 4] {
        let limits = &core.limits;
        let commands = &mut self.session.commands;
        let (mut silent, mut asked) = (Time::NEVER, Time::NEVER);
        // While its input is held back, the host is not late.
        if self.session.transferring > 0 && self.session.stalled.is_none() {
            silent = self.session.last_input + limits.stall_timeout;
            let since = commands.asked().map(|(since, _)| since).min();
            let since = since.unwrap_or(Time::NEVER).max(self.session.resumed);
            asked = since + limits.transfer_timeout;
        }
        let subsystem = self.access.subsystem;
        let changes = |nsid| {
            core.namespace_ref(subsystem, nsid)
                .is_some_and(|n| !n.is_open())
        };
        if self.deadlines.change <= now && !commands.asked().any(|(_, nsid)| changes(nsid)) {
            self.deadlines.change = Time::NEVER;
        }
        let half = self.session.pdu_since + limits.pdu_timeout;
        [
            (silent, Late::Silent),
            (asked, Late::Transfer),
            (half, Late::Pdu),
            (self.deadlines.change, Late::Change),
        ]
    }

    /// Sets the deadline before a change of a namespace: requested data of its commands must arrive
    /// within `pause_patience`.
    pub(crate) fn hurry(&mut self, nsid: u32, core: &mut CoreState, now: Time) {
        let mut asked = self.session.commands.asked();
        let waits = self.session.transferring > 0 && asked.any(|(_, of)| of == nsid);
        drop(asked);
        if waits {
            let until = now + core.limits.pause_patience;
            self.deadlines.change = until;
            self.arm(core, until);
        }
    }

    /// Handles the expiry of the timer, which was set for `now` or earlier.
    pub(crate) fn timer(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.deadlines.timer > cx.now {
            return;
        }
        self.deadlines.timer = Time::NEVER;
        let mut next = self.authentication_timer(core, cx);
        let limits = &core.limits;
        let mut expired = None;
        let mut check = |deadline: Time, late: Late| {
            if deadline <= cx.now {
                expired = Some(late);
            } else {
                next = next.min(deadline);
            }
        };
        match self.state() {
            ConnectionState::AwaitingIcReq | ConnectionState::AwaitingConnect => match &self.chap {
                None => check(
                    self.deadlines.opened + limits.connect_timeout,
                    Late::Connect,
                ),
                Some(chap) if chap.has_failed() => check(chap.deadline, Late::Lingering),
                Some(chap) => check(chap.deadline, Late::Authentication),
            },
            ConnectionState::Live => {}
            ConnectionState::Terminating => check(self.deadlines.close, Late::Lingering),
            ConnectionState::Draining if self.is_drained() => {
                check(self.deadlines.close, Late::Lingering);
            }
            ConnectionState::Draining => check(self.deadlines.close, Late::Ending),
            ConnectionState::Closing | ConnectionState::Closed => return,
        }
        for (deadline, late) in self.input_deadlines(core, cx.now) {
            check(deadline, late);
        }
        let output = &self.session.output;
        if output.is_sending() {
            let slow = output.pace().slow_since();
            check(slow + limits.stall_timeout, Late::Unread);
        }
        // Signs of life are held with the commands.
        let hears = self.session.held.is_none();
        if let Owner::Admin(controller) = &mut self.owner
            && hears
        {
            check(controller.deadline(cx.now), Late::silence_of(controller));
        }
        let Some(late) = expired else {
            self.arm(core, next);
            return;
        };
        self.close_late(late, core, cx);
    }

    /// Closes the connection of a host that has not read answers that a change waits for.
    pub(super) fn close_unread(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state() < ConnectionState::Closing {
            self.close_late(Late::ChangeUnread, core, cx);
        }
    }

    fn close_late(&mut self, late: Late, core: &mut CoreState, cx: &mut Context<'_>) {
        core.touch();
        if let Some((reason, counter)) = late.reason(&mut core.stats) {
            *counter += 1;
            let peer = self.peer;
            if let Some(suppressed) = core.log_budget.allow(peer.ip(), cx.now) {
                tracing::warn!(%peer, reason, suppressed, "closing a connection");
            }
        }
        self.close(core, cx);
    }
}

impl PollGroup {
    pub(super) fn run_timers(&mut self, cx: &mut Context<'_>) {
        while let Some(key) = self.core.connections.timers.pop_due(cx.now) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.timer(&mut self.core, cx);
            }
        }
        let (timers, connections) = (&mut self.core.connections.timers, &self.connections);
        // A host chooses its keep-alive time-out, and may change it repeatedly.
        timers.prune(connections.len(), |at, key| {
            let connection = connections.get(key);
            connection.is_some_and(|connection| connection.deadlines.timer == at)
        });
    }

    /// Returns true if a queue may have unused memory.
    pub(super) fn has_to_trim(&self) -> bool {
        let stats = &self.core.stats;
        let commands = stats.io_commands + stats.admin_commands;
        stats.command_places > 0 || commands != self.core.trimming.commands
    }

    /// Makes queues free unused memory, once per `trim_interval`.
    pub(super) fn trim(&mut self, now: Time) {
        if now < self.core.trimming.next || !self.has_to_trim() {
            return;
        }
        let mut places = 0;
        for (_, connection) in self.connections.iter_mut() {
            places += connection.session.commands.trim() as u64;
        }
        let core = &mut self.core;
        core.trimming.next = now + core.limits.trim_interval;
        core.trimming.commands = core.stats.io_commands + core.stats.admin_commands;
        core.stats.command_places = places;
        core.touch();
    }
}

/// Deadline that a connection missed.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// Completing Connect.
    Connect,
    /// Authenticating after Connect.
    Authentication,
    /// Closing the connection after the target's last PDU.
    Lingering,
    /// No missed deadline of the host: the drain time of a connection is over, with commands in
    /// flight.
    Ending,
    /// Sending any data while data is expected.
    Silent,
    /// Sending all the data of a command.
    Transfer,
    /// Sending the rest of a PDU.
    Pdu,
    /// Sending data that a change waits for.
    Change,
    /// Reading answers that a change waits for.
    ChangeUnread,
    /// Reading answers.
    Unread,
    /// Sending Keep Alive in time.
    KeepAlive,
    /// Any sign of life, for a controller without a keep-alive timer.
    Idle,
    /// Any command, for a discovery controller without a keep-alive timer.
    DiscoveryIdle,
}

impl Late {
    /// Returns the deadline that the silent host of a controller missed.
    fn silence_of(controller: &Controller) -> Self {
        match controller.keep_alive.timeout_ms {
            1.. => Self::KeepAlive,
            0 if controller.is_discovery() => Self::DiscoveryIdle,
            0 => Self::Idle,
        }
    }

    /// Returns the reason for the log and the counter to increment.
    fn reason(self, stats: &mut CoreStats) -> Option<(&'static str, &mut u64)> {
        Some(match self {
            Self::Ending => return None,
            // The end itself has been logged with its reason.
            Self::Lingering => {
                stats.linger_timeouts += 1;
                return None;
            }
            Self::Connect => (
                "the host did not send Connect in time",
                &mut stats.connect_timeouts,
            ),
            Self::Authentication => (
                "the host did not authenticate in time",
                &mut stats.authentication_timeouts,
            ),
            Self::Silent => (
                "the host did not send its data in time",
                &mut stats.stall_timeouts,
            ),
            Self::Transfer => (
                "the host did not send its data in time",
                &mut stats.transfer_timeouts,
            ),
            Self::Pdu => (
                "the host did not complete a PDU in time",
                &mut stats.pdu_timeouts,
            ),
            Self::Change => (
                "the host did not send data that delays a change of the configuration",
                &mut stats.pause_timeouts,
            ),
            Self::ChangeUnread => (
                "the host did not read responses that delay a change of the configuration",
                &mut stats.pause_timeouts,
            ),
            Self::Unread => (
                "the host did not read responses in time",
                &mut stats.stall_timeouts,
            ),
            Self::KeepAlive => (
                "the keep-alive timer expired",
                &mut stats.keep_alive_expirations,
            ),
            Self::Idle => (
                "the controller was idle for too long without a keep-alive timer or I/O queues",
                &mut stats.controller_idle_timeouts,
            ),
            Self::DiscoveryIdle => (
                "the discovery controller was idle for too long without a keep-alive timer",
                &mut stats.discovery_idle_timeouts,
            ),
        })
    }
}
