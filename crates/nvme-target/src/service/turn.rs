//! A turn of a core: input from the driver and other cores, then all due work. Also the start and
//! end of a core: new connections and the drain.

use crate::controller::registry::ConnectionPlace;
use crate::message::{CoreMessage, Message};
use crate::permit::ConnectionPermit;
use crate::request::{CommandState, Step, Ticket};
use crate::service::connection::{CLOSE, Connection};
use crate::service::connection_state::ConnectionState;
use crate::service::input::RECEIVE;
use crate::service::moves::RELEASE;
use crate::service::poll_group::PollGroup;
use crate::service::wait_lists::{INPUT, WaitsFor};
use crate::session::output::SEND;
use base::{Nanos, SlabKey, Time};
use reactor::tls::Refused;
use reactor::{Completion, Context, Outcome, PollPolicy, Service, Stream};
use std::io::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use wire::nvme::opcode::AdminOpcode;

impl Service for PollGroup {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        self.core.states.now = cx.now;
        self.core.work.bring();
        if completion.key.op_namespace != self.core.op_namespace {
            self.channel_completed(completion, cx);
            return;
        }
        let key = completion.key.slab_key();
        match completion.outcome {
            Outcome::Received(received) => {
                if let Some(connection) = self.connections.get_mut(key) {
                    debug_assert_eq!(completion.key.kind, RECEIVE);
                    connection.received(received, &mut self.core, cx);
                }
            }
            Outcome::Sent { list, result } => {
                debug_assert_eq!(completion.key.kind, SEND);
                let Some(connection) = self.connections.get_mut(key) else {
                    // The accounts of the connection ended with it.
                    let nobody = self.core.accounts.unowned();
                    self.core.lists.give_back(list, &nobody);
                    return;
                };
                let output = &mut connection.session.output;
                let sent = output.sent(list, &mut self.core.sends(), cx.now);
                connection.holding.give_back(sent);
                if self.core.traces.is_on() && result.is_ok() {
                    connection.end_traced(&mut self.core, cx.now);
                }
                if let Err(error) = result {
                    connection.broken(&error, &mut self.core, cx);
                }
            }
            Outcome::Closed => {
                debug_assert_eq!(completion.key.kind, CLOSE);
                self.stream_closed(key, cx);
            }
            Outcome::Released(stream) => {
                debug_assert_eq!(completion.key.kind, RELEASE);
                self.released(key, stream, cx);
            }
            Outcome::Accepted(Ok((stream, peer))) => self.accepted(stream, peer, cx),
            Outcome::Accepted(Err(error)) => {
                let ended = reactor::accept_has_ended(&error) && self.accept_ended();
                // A closed listener's accept completes once more.
                if !ended && self.listens(completion.key.index) {
                    self.not_accepted(&error, cx.now);
                }
            }
            // Operations that a poll group never starts.
            Outcome::Connected(_)
            | Outcome::Computed(_)
            | Outcome::File { .. }
            | Outcome::Readable(_) => {}
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        debug_assert!(self.core.stores.is_empty(), "ordered with the input");
        self.core.states.now = cx.now;
        self.core.work.bring();
        match message.0 {
            CoreMessage::Arrive { stream, handover } => self.arrive(stream, *handover, cx),
            CoreMessage::Give { permille, to } => self.give(permille, to, cx.now),
            CoreMessage::Look => {}
            CoreMessage::Change { steps, debt } => self.change(steps, debt, cx),
            CoreMessage::Notify { subsystem, notice } => self.notify(subsystem, notice, cx),
            CoreMessage::EndDenied => self.end_denied(cx),
            CoreMessage::EndQueue { connection, cntlid } => self.end_queue(connection, cntlid, cx),
            CoreMessage::QueuesEnded { connection, cntlid } => {
                self.queues_ended(connection, cntlid)
            }
            CoreMessage::Abort {
                connection,
                cid,
                from,
                asker,
            } => {
                if let Some(aborted) = self.abort(connection, cid, (from, asker), cx) {
                    let answer = CoreMessage::Aborted { asker, aborted };
                    self.core.shared.deliver(from, answer);
                }
            }
            CoreMessage::Reserved { asker, status } => self.reserved(asker, status, cx),
            CoreMessage::Aborted { asker, aborted } => self.aborted(asker, aborted, cx),
            CoreMessage::Ended { asker } => self.answer_later(asker, 0, cx),
            CoreMessage::Computed { connection, result } => self.computed(connection, result, cx),
            CoreMessage::Fence(debt) => self.fence(debt),
            CoreMessage::Fenced(fence) => self.fenced(fence, cx),
            CoreMessage::Unfence(fence) => self.unfence(fence),
            CoreMessage::Depart { departure, debt } => self.depart(departure, debt, cx),
            CoreMessage::Stay { debt } => self.stay(debt),
            CoreMessage::TakeOver(arrival) => self.take_over(*arrival, cx),
            CoreMessage::Join { queue, controller } => self.join(*queue, Some(controller), cx),
            CoreMessage::Trace(open) => self.core.traces.replace(open),
            CoreMessage::Shutdown => self.shut_down(cx),
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        debug_assert!(self.core.stores.is_empty(), "ordered with the input");
        self.core.states.now = cx.now;
        self.run_timers(cx);
        self.run_devices(cx);
        self.run_waiters(cx);
        self.run_tokens(cx);
        self.run_kicks(cx);
        self.run_actions(cx);
        self.run_withdrawals(cx);
        self.run_output(cx);
        self.run_drain(cx);
        self.run_closing(cx);
        self.forget_silent(cx.now);
        self.trim(cx.now);
        self.steer(cx.now);
        self.scale(cx);
        self.run_moves(cx);
        self.run_departure(cx);
        self.run_fences();
        self.core.publish(cx, self.connections.len());
    }

    fn deadline(&self) -> Time {
        let timers = [
            self.core.connections.timers.next(),
            self.core.switch.held.next(),
            self.steering.deadline(),
            Some(self.core.tokens.deadline()),
            Some(self.scaling_deadline()),
            Some(self.withdrawal_deadline()),
        ];
        let mut deadline = timers.into_iter().flatten().min().unwrap_or(Time::NEVER);
        if self.core.publication.due {
            deadline = deadline.min(self.core.publication.at);
        }
        if self.core.switch.is_loaded() {
            deadline = deadline.min(self.core.switch.forget_at);
        }
        if self.draining && !self.gave_up {
            deadline = deadline.min(self.drain_deadline);
        }
        if self.has_to_trim() {
            deadline = deadline.min(self.core.trimming.next);
        }
        let work = self.core.switch.is_ready() || !self.core.actions.is_empty();
        let work = work || self.core.waiters.untried > 0 || self.core.lists.has_to_look();
        if work || !self.core.waiters.released.is_empty() {
            return Time::ZERO;
        }
        let namespaces = self.core.namespaces.active.iter();
        let namespaces = namespaces.filter_map(|&(s, nsid)| self.core.namespace_ref(s, nsid));
        for namespace in namespaces.filter(|n| n.direct.is_none() || n.in_channel > 0) {
            deadline = deadline.min(namespace.channel.deadline());
            let stuck = !namespace.backlog.is_empty() && namespace.in_channel == 0;
            if stuck || namespace.gathered {
                return Time::ZERO;
            }
        }
        deadline
    }

    fn poll_policy(&self) -> Option<PollPolicy> {
        if self.connections.is_empty() && !self.is_in_use() {
            return Some(PollPolicy::Never);
        }
        self.polls
    }

    fn finished(&self) -> bool {
        let done = self.connections.is_empty() && self.core.namespaces.closing.is_empty();
        self.draining && (done || self.gave_up)
    }
}

/// Commands, and connections with input, that may retry for a share in one turn. It bounds the
/// length of a turn, independently of the number of waiting entries.
const WAITERS_A_TURN: usize = 64;

impl PollGroup {
    /// Resumes commands that waited for buffers, in order per size, then those that waited for
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
                    // Still no buffer: all keep their positions.
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
                connection.run(ticket.slot, &mut self.core, cx).resume();
            }
        }
    }

    /// Retries at most [`WAITERS_A_TURN`] commands that wait for a share, which may be free now.
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

    /// Retries a command or input that was just taken off its list; if it has to wait again, it is
    /// the last of a list. Returns true for input that continued; it may be the last of a list
    /// because of its next command.
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
        connection
            .run(ticket.slot, &mut self.core, cx)
            .advance(Step::Prepare);
        false
    }

    /// Retries at most [`WAITERS_A_TURN`] connections that wait for a send list, if one was
    /// returned.
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

impl PollGroup {
    /// Runs a round of every token scheduler, and resumes the commands whose tokens are paid.
    pub(super) fn run_tokens(&mut self, cx: &mut Context<'_>) {
        self.core.tokens.round(cx.now);
        while let Some(ticket) = self.core.tokens.released() {
            self.core.work.bring();
            self.paid(ticket, cx);
        }
    }

    /// Stops token scheduling for the shutdown: no command waits for tokens any more.
    pub(super) fn stop_scheduling(&mut self, cx: &mut Context<'_>) {
        self.core.unscheduled = true;
        for ticket in self.core.tokens.drain() {
            self.paid(ticket, cx);
        }
    }

    /// Assigns every connection its token queues by the current rules.
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
            connection.run(ticket.slot, &mut self.core, cx).paid();
        }
    }
}

impl PollGroup {
    pub(super) fn accepted(&mut self, stream: Stream, peer: SocketAddr, cx: &mut Context<'_>) {
        match self.core.shared.permits.take(peer.ip()) {
            Ok(permit) => self.adopt(stream, peer, permit, cx),
            Err(refused) => {
                refused.count(&mut self.core.stats);
                self.refuse(peer, cx);
            }
        }
    }

    /// Reports a connection that was not accepted.
    fn not_accepted(&mut self, error: &Error, now: Time) {
        let refused = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Refused>());
        let Some(Refused { peer, error }) = refused else {
            // The peer's address is unknown.
            let nobody = Ipv4Addr::UNSPECIFIED.into();
            if let Some(suppressed) = self.core.log_budget.allow(nobody, now) {
                tracing::warn!(%error, suppressed, "cannot accept a connection");
            }
            return;
        };
        self.core.touch();
        self.core.stats.refused += 1;
        if let Some(suppressed) = self.core.log_budget.allow(peer.ip(), now) {
            tracing::warn!(%peer, suppressed, "refused a connection: {error}");
            let reason = format!("TLS: {error}");
            self.core.shared.note_refused(None, peer.ip(), reason);
        }
    }

    /// Drops a new connection because there is no room for it.
    fn refuse(&mut self, peer: SocketAddr, cx: &Context<'_>) {
        self.core.touch();
        self.core.stats.refused += 1;
        if let Some(suppressed) = self.core.log_budget.allow(peer.ip(), cx.now) {
            tracing::warn!(%peer, suppressed, "refused a connection: too many connections are open");
        }
    }

    fn adopt(
        &mut self,
        stream: Stream,
        peer: SocketAddr,
        permit: ConnectionPermit,
        cx: &mut Context<'_>,
    ) {
        if self.core.connections.fresh >= self.core.limits.fresh_max() {
            self.end_oldest_fresh(cx);
        }
        let full = self.connections.is_full() || !cx.driver.has_room_for_socket();
        if full || self.draining {
            self.refuse(peer, cx);
            return;
        }
        let core = &mut self.core;
        core.touch();
        core.stats.accepted += 1;
        let local = stream.local_address();
        let proven = stream.proven().cloned().map(Box::new);
        let socket = cx.driver.adopt(stream);
        let now = cx.now;
        let ends = (peer, local);
        let mut connection = Box::new(Connection::new(socket, ends, permit, core, now));
        connection.proven = proven;
        let Ok(key) = self.connections.insert(connection) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(key) {
            connection.set_key(key);
            connection.start(core, cx);
            self.fresh.push_back(key);
        }
        self.hold_arrived(key);
        self.forget_known();
    }

    /// Closes the connection that has been longest without Connect, so that silent connections
    /// cannot keep out new ones.
    fn end_oldest_fresh(&mut self, cx: &mut Context<'_>) {
        while let Some(key) = self.fresh.pop_front() {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if !connection.is_fresh() {
                continue;
            }
            self.core.stats.refused += 1;
            self.core.stats.fresh_closed += 1;
            let peer = connection.peer;
            if let Some(suppressed) = self.core.log_budget.allow(peer.ip(), cx.now) {
                tracing::warn!(%peer, suppressed, "closed a connection before Connect: too many \
                    connections have not sent Connect");
            }
            connection.close(&mut self.core, cx);
            return;
        }
    }

    /// Removes connections that are no longer fresh, so that the list stays below twice the limit
    /// of fresh connections.
    fn forget_known(&mut self) {
        let connections = &self.connections;
        let is_fresh = |key: SlabKey| connections.get(key).is_some_and(|c| c.is_fresh());
        while self.fresh.front().is_some_and(|&key| !is_fresh(key)) {
            self.fresh.pop_front();
        }
        if self.fresh.len() >= 2 * self.core.limits.fresh_connections {
            self.fresh.retain(|&key| is_fresh(key));
        }
    }
}

/// Time from the end of the drain, when connections are closed, until requests still in a device
/// are abandoned: sockets close in microseconds, and a device already had the whole drain time.
const GIVE_UP_TIME: Nanos = Nanos::from_secs(1);

impl PollGroup {
    pub(super) fn shut_down(&mut self, cx: &mut Context<'_>) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.drain_deadline = cx.now + self.core.limits.drain_timeout;
        for (_, listener) in self.listeners.drain(..) {
            cx.driver.close_listener(listener);
        }
        self.stop_scheduling(cx);
        for (_, connection) in self.connections.iter_mut() {
            connection.drain(&mut self.core, cx);
        }
    }

    /// Closes draining connections that have nothing left to answer.
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

    /// Ends the drain after its time-out: closes every connection, then after [`GIVE_UP_TIME`]
    /// abandons the requests that a device still has. Their hosts never received a completion.
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
            "exit with commands that a device has not completed; they may or may not have taken \
             effect"
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

/// Holdings of the connections of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Connections that the core still has.
    pub connections: usize,
    /// Connections before Connect.
    pub fresh_connections: usize,
    /// Send lists in flight or queued.
    pub send_lists: usize,
    /// Extent tables.
    pub extent_tables: u64,
    /// Commands, and connections with input, waiting for buffers or shares.
    pub waiting: usize,
    /// I/O queues of all classes.
    pub queues: usize,
    /// Namespaces with commands in flight or requests waiting for their device.
    pub busy_namespaces: usize,
}

impl Held {
    /// Returns true if all resources have been returned.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl PollGroup {
    /// Returns the holdings of the core's connections.
    #[must_use]
    pub fn held(&self) -> Held {
        let core = &self.core;
        let subsystems = core.namespaces.subsystems.iter().flatten();
        let namespaces = subsystems.flat_map(|subsystem| subsystem.namespaces.iter().flatten());
        Held {
            connections: self.connections.len(),
            fresh_connections: core.connections.fresh,
            send_lists: core.lists.used(),
            extent_tables: core.accounts.tables(),
            waiting: core.waiters.lists.len_all(),
            queues: core.switch.queues.iter().map(|(_, &queues)| queues).sum(),
            busy_namespaces: namespaces.filter(|namespace| !namespace.is_quiet()).count(),
        }
    }
}
