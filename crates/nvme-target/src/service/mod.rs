//! The connections of one core: the service that its loop runs.
//!
//! It takes what the driver brings to the connection or channel that it is for, carries out what
//! other cores and the control plane ask, and once a turn sends what was gathered. The first core's
//! poll group also owns the listeners and all admin queues, deals I/O queues out, and decides how
//! many cores are in use.

mod accept;
mod barriers;
mod changes;
pub(crate) mod core;
mod devices;
pub(crate) mod events;
mod held;
mod output;
mod scaling;
mod steering;
mod tokens;

use crate::command;
use crate::controller::async_events::Notice;
use crate::controller::registry::{Place, SharedController};
use crate::message::{Message, Note};
use crate::request::{Phase, Ticket};
use crate::service::core::{Action, CoreState};
use crate::session::connection::{CLOSE, Connection, Owner, State};
use crate::session::input::RECEIVE;
use crate::session::output::SEND;
use crate::shared::Shared;
use base::{Nanos, Slab, SlabKey, Time};
use block::Completion as BlockCompletion;
pub use held::Held;
use reactor::{Completion, Context, ListenerId, OpNamespace, Outcome, PollPolicy, Service};
use scaling::Scaling;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steering::{RELEASE, Steering};
use switch::thread_scaling::ThreadScalingCounters;
use wire::nvme::Status;
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::opcode::AdminOpcode;

/// From the end of the time to drain, when connections are closed, until what is still in a device
/// is given up: sockets close in microseconds, and a device had the whole drain time already.
const GIVE_UP_TIME: Nanos = Nanos::from_secs(1);

/// Commands that are asked in a turn whether they may have a buffer: however many wait, a turn is
/// not much longer.
const WAITERS_A_TURN: usize = 64;

/// The connections of one core.
#[derive(Debug)]
pub struct PollGroup {
    core: CoreState,
    connections: Slab<Box<Connection>>,
    /// Those of which nobody knows yet whose they are, oldest first; others among them are skipped.
    fresh: VecDeque<SlabKey>,
    listeners: Vec<ListenerId>,
    /// Where the operations of a room belong: to a namespace of a subsystem.
    rooms: Vec<Option<(u32, u32)>>,
    /// Requests that were done at once when they were submitted again.
    done: VecDeque<BlockCompletion>,
    /// The target shuts down.
    draining: bool,
    drain_deadline: Time,
    /// The core ends although something has not come back from a device.
    gave_up: bool,
    accepting: bool,
    /// Whether an idle core polls, once anybody said so.
    polls: Option<PollPolicy>,
    steering: Steering,
    scaling: Scaling,
}

impl PollGroup {
    /// The service of core `index` of the target.
    pub(crate) fn new(index: usize, op_namespace: OpNamespace, shared: Arc<Shared>) -> Self {
        let connections = shared.limits.connections;
        let knobs = shared.knobs().unwrap_or_default();
        let range = shared.threads.range(&knobs);
        if index == 0 {
            shared
                .threads
                .set_active(range.min, &ThreadScalingCounters::default());
        }
        Self {
            core: CoreState::new(index, op_namespace, shared),
            connections: Slab::with_capacity(connections),
            fresh: VecDeque::new(),
            listeners: Vec::new(),
            rooms: Vec::new(),
            done: VecDeque::new(),
            draining: false,
            drain_deadline: Time::NEVER,
            gave_up: false,
            accepting: false,
            polls: None,
            steering: Steering::default(),
            scaling: Scaling::new(index, range),
        }
    }

    /// Takes over a listener, whose connections it deals out.
    pub fn add_listener(&mut self, listener: ListenerId) {
        self.listeners.push(listener);
    }

    /// Forgets a connection of which nothing is left. What a device has not answered keeps its
    /// memory until then; who only waits that nothing is changed any more is told before.
    fn reclaim(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.disarm()
            && let Some(controller) = connection.controller()
        {
            self.core.disarm(controller);
        }
        if !connection.is_gone() {
            return;
        }
        let Some(mut connection) = self.connections.remove(key) else {
            return;
        };
        connection.strike_off(&mut self.core);
        connection.output.serve(self.core.accounts.nobody());
        if let Some(controller) = connection.controller() {
            self.core.detach(controller);
        }
        self.core.touch();
        let subsystem = connection.subsystem;
        drop(connection);
        self.finish_removal(subsystem, cx);
    }

    /// Forgets a subsystem that is being removed, once its last connection is gone.
    fn finish_removal(&mut self, index: u32, cx: &mut Context<'_>) {
        let slot = self.core.subsystems.get_mut(index as usize);
        let removing = slot
            .and_then(|slot| slot.as_ref())
            .is_some_and(|s| s.removing.is_some());
        if !removing || self.connections.iter().any(|(_, c)| c.subsystem == index) {
            return;
        }
        if let Some(subsystem) = self.core.subsystems[index as usize].take() {
            for namespace in subsystem.namespaces.into_iter().flatten() {
                if let Some(scheduler) = namespace.scheduler {
                    self.core.tokens.close(scheduler);
                }
                self.core.close_channel(namespace.channel, cx);
            }
        }
    }

    /// Lets those go on that waited for a buffer: first input, which holds up all that follows it,
    /// then commands.
    fn run_waiters(&mut self, cx: &mut Context<'_>) {
        self.core.went_on = false;
        // One that waits for its own share does not keep others from theirs.
        for _ in 0..self.core.input_waiters.len().min(WAITERS_A_TURN) {
            let Some(key) = self.core.input_waiters.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if connection.resume_input(&mut self.core, cx) {
                self.reclaim(key, cx);
                self.core.went_on = true;
            } else {
                self.core.input_waiters.push_back(key);
            }
        }
        for _ in 0..self.core.buffer_waiters.len() {
            let Some(ticket) = self.core.buffer_waiters.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(ticket.connection) else {
                continue;
            };
            let waits = connection.qpair.get(ticket.slot);
            if waits.is_none_or(|entry| entry.phase != Phase::WaitingForBuffer) {
                continue;
            }
            command::proceed(connection, ticket.slot, &mut self.core, cx);
            if self.core.buffer_waiters.back() == Some(&ticket) {
                // Still none: everybody keeps their place.
                self.core.buffer_waiters.pop_back();
                self.core.buffer_waiters.push_front(ticket);
                break;
            }
        }
        self.run_share_waiters(cx);
        self.run_list_waiters();
        while let Some(ticket) = self.core.released.pop_front() {
            let Some(connection) = self.connections.get_mut(ticket.connection) else {
                continue;
            };
            let waits = connection.qpair.get(ticket.slot);
            if waits.is_some_and(|entry| entry.phase == Phase::WaitingForNamespace) {
                command::tokens::again(connection, ticket.slot, &mut self.core, cx);
            }
        }
    }

    /// Lets some of those go on whose connection or host holds less than its share by now.
    fn run_share_waiters(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.core.share_waiters.len().min(WAITERS_A_TURN) {
            let Some(ticket) = self.core.share_waiters.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(ticket.connection) else {
                continue;
            };
            let waits = connection.qpair.get(ticket.slot);
            if waits.is_some_and(|entry| entry.phase == Phase::WaitingForBuffer) {
                command::proceed(connection, ticket.slot, &mut self.core, cx);
            }
            self.core.went_on |= self.core.share_waiters.back() != Some(&ticket);
        }
    }

    /// Lets some of those try again that have no list for what they are to send, where one came
    /// back.
    fn run_list_waiters(&mut self) {
        let core = &mut self.core;
        if !std::mem::take(&mut core.lists.returned) {
            return;
        }
        for _ in 0..core.lists.waiting.len().min(WAITERS_A_TURN) {
            if let Some((class, key)) = core.lists.waiting.pop_front() {
                core.switch.push_ready(class, key);
            }
        }
    }

    fn run_timers(&mut self, cx: &mut Context<'_>) {
        while let Some((index, generation)) = self.core.timers.pop_due(cx.now) {
            let key = SlabKey { index, generation };
            if let Some(connection) = self.connections.get_mut(key) {
                connection.timer(&mut self.core, cx);
            }
        }
    }

    /// Whether a queue may have memory that it does not need.
    fn has_to_trim(&self) -> bool {
        let stats = &self.core.stats;
        let commands = stats.io_commands + stats.admin_commands;
        stats.command_places > 0 || commands != self.core.trimming.commands
    }

    /// Lets queues give back memory, once in a while.
    fn trim(&mut self, now: Time) {
        if now < self.core.trimming.next || !self.has_to_trim() {
            return;
        }
        let mut places = 0;
        for (_, connection) in self.connections.iter_mut() {
            places += connection.qpair.trim() as u64;
        }
        let core = &mut self.core;
        core.trimming.next = now + core.limits.trim_interval;
        core.trimming.commands = core.stats.io_commands + core.stats.admin_commands;
        core.stats.command_places = places;
        core.touch();
    }

    fn run_actions(&mut self, cx: &mut Context<'_>) {
        while let Some(action) = self.core.actions.pop() {
            match action {
                Action::EndController(controller) => self.end_controller(&controller, cx),
                Action::EndOther { controller, asker } => {
                    self.end_controller(&controller, cx);
                    self.end_queues(controller.id, std::iter::once(controller.admin), cx);
                    if !controller.wait_for_end(self.core.index, asker) {
                        self.answer_later(asker, 0, cx);
                    }
                }
                Action::EndQueues(controller) => {
                    let places = std::mem::take(&mut controller.queues().places);
                    self.end_queues(controller.id, places.into_values(), cx);
                }
                Action::Abort { queue, cid, asker } => self.pass_abort(queue, cid, asker, cx),
            }
        }
    }

    /// Ends a controller's I/O queues, and lets it take no more.
    fn end_controller(&mut self, controller: &SharedController, cx: &mut Context<'_>) {
        let mut queues = controller.queues();
        queues.dead = true;
        queues.ready = false;
        let places = std::mem::take(&mut queues.places);
        drop(queues);
        self.end_queues(controller.id, places.into_values(), cx);
    }

    fn end_queues(
        &mut self,
        cntlid: u16,
        places: impl Iterator<Item = Place>,
        cx: &mut Context<'_>,
    ) {
        for Place { core, connection } in places {
            if core == self.core.index {
                self.end_queue(connection, cntlid, cx);
            } else {
                let note = Note::EndQueue { connection, cntlid };
                self.core.shared.deliver(core, note);
            }
        }
    }

    fn end_queue(&mut self, key: SlabKey, cntlid: u16, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let owned = |controller: &Arc<SharedController>| controller.id == cntlid;
        if connection.controller().is_some_and(owned) {
            connection.close(&mut self.core, cx);
        }
    }

    /// Ends a host's controllers of a subsystem.
    fn end_host(
        &mut self,
        subsystem: u32,
        (host_nqn, from): (&str, Option<IpAddr>),
        cx: &mut Context<'_>,
    ) {
        for (_, connection) in self.connections.iter_mut() {
            let Owner::Admin(controller) = &connection.owner else {
                continue;
            };
            let SharedController {
                host_nqn: name,
                peer,
                ..
            } = &*controller.shared;
            let meant = name == host_nqn && from.is_none_or(|from| from == peer.ip());
            if connection.subsystem == subsystem && meant {
                connection.close(&mut self.core, cx);
            }
        }
    }

    fn pass_abort(&mut self, queue: Place, cid: u16, asker: Ticket, cx: &mut Context<'_>) {
        let Place { core, connection } = queue;
        if core == self.core.index {
            let aborted = self.abort(connection, cid, cx);
            self.aborted(asker, aborted, cx);
            return;
        }
        let from = self.core.index;
        let message = Note::Abort {
            connection,
            cid,
            from,
            asker,
        };
        if self.core.shared.send(core, message).is_err() {
            self.aborted(asker, false, cx);
        }
    }

    fn abort(&mut self, key: SlabKey, cid: u16, cx: &mut Context<'_>) -> bool {
        let connection = self.connections.get_mut(key);
        connection.is_some_and(|connection| command::abort(connection, cid, &mut self.core, cx))
    }

    /// Answers an Abort command.
    fn aborted(&mut self, asker: Ticket, aborted: bool, cx: &mut Context<'_>) {
        let result = if aborted { 0 } else { ABORT_NOT_ABORTED };
        self.answer_later(asker, u64::from(result), cx);
    }

    /// Answers an admin command that had to wait, with success.
    fn answer_later(&mut self, asker: Ticket, result: u64, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(asker.connection) else {
            return;
        };
        let Some(entry) = connection.qpair.get(asker.slot) else {
            return;
        };
        if entry.phase != Phase::Executing {
            return;
        }
        entry.result = result;
        command::finish(connection, asker.slot, Status::SUCCESS, &mut self.core, cx);
        self.reclaim(asker.connection, cx);
    }

    fn notify(&mut self, subsystem: Option<u32>, notice: Notice, cx: &mut Context<'_>) {
        for (_, connection) in self.connections.iter_mut() {
            let Owner::Admin(controller) = &mut connection.owner else {
                continue;
            };
            let meant = match subsystem {
                Some(index) => !controller.is_discovery() && connection.subsystem == index,
                None => controller.is_discovery(),
            };
            let hidden = matches!(notice, Notice::Namespace(nsid) if !controller.sees(nsid));
            if meant && !hidden {
                controller.events.raise(notice);
                events::deliver(connection, &mut self.core, cx);
            }
        }
    }

    fn tell_of_tenant(&mut self, tenant: &str, cx: &mut Context<'_>) {
        let rules = self.core.shared.rules();
        for (_, connection) in self.connections.iter_mut() {
            let Owner::Admin(controller) = &mut connection.owner else {
                continue;
            };
            if controller.events.tenants && controller.shared.whom(&rules).is(tenant) {
                controller.events.raise(Notice::Tenant);
                events::deliver(connection, &mut self.core, cx);
            }
        }
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.drain_deadline = cx.now + self.core.limits.drain_timeout;
        for listener in self.listeners.drain(..) {
            cx.driver.close_listener(listener);
        }
        self.stop_scheduling(cx);
        self.interrupt_barriers(cx);
        for (_, connection) in self.connections.iter_mut() {
            connection.drain(&mut self.core, cx);
        }
    }

    /// Looks whether draining connections have nothing left to answer.
    fn run_drain(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(&key) = self.core.draining.get(index) {
            let connection = self.connections.get_mut(key);
            let connection = connection.filter(|connection| connection.state == State::Draining);
            if let Some(connection) = connection {
                connection.drained(&mut self.core, cx);
                index += 1;
            } else {
                self.core.draining.swap_remove(index);
            }
        }
        if !self.draining {
            return;
        }
        if cx.now >= self.drain_deadline && !self.gave_up {
            self.out_of_time(cx);
        }
        if self.connections.is_empty() {
            let subsystems = std::mem::take(&mut self.core.subsystems);
            let namespaces = subsystems.into_iter().flatten().flat_map(|s| s.namespaces);
            for namespace in namespaces.flatten() {
                self.core.close_channel(namespace.channel, cx);
            }
        }
    }

    /// The time to drain is over: first every connection is closed, then, a moment later, what a
    /// device still has is given up. Its hosts were never told that it was done.
    fn out_of_time(&mut self, cx: &mut Context<'_>) {
        let open = |connection: &Connection| connection.state < State::Closing;
        let commands: u32 = self.connections.iter().map(|(_, c)| c.qpair.used()).sum();
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

    fn stream_closed(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.qpair.awaits(AdminOpcode::END_CONTROLLER) {
            let place = Place {
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

impl Service for PollGroup {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
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
                    // What it counted against went with the connection.
                    let nobody = self.core.accounts.nobody();
                    self.core.lists.give_back(list, &nobody);
                    return;
                };
                let sent = connection.output.sent(list, &mut self.core);
                connection.holding.give_back(sent);
                if result.is_err() {
                    connection.close(&mut self.core, cx);
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
                // Nobody's address is known.
                let nobody = Ipv4Addr::UNSPECIFIED.into();
                if !self.draining
                    && let Some(suppressed) = self.core.log_budget.allow(nobody, cx.now)
                {
                    tracing::warn!(%error, suppressed, "cannot accept a connection");
                }
            }
            // Operations that a poll group never starts.
            Outcome::Connected(_) | Outcome::File { .. } => {}
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        self.core.work.bring();
        match message.0 {
            Note::Arrive { stream, luggage } => self.arrive(stream, *luggage, cx),
            Note::Give { permille, to } => self.give(permille, to, cx.now),
            Note::Look => {}
            Note::Change { steps, ack } => self.change(steps, &ack, cx),
            Note::Notify { subsystem, notice } => self.notify(subsystem, notice, cx),
            Note::TenantEvent(tenant) => self.tell_of_tenant(&tenant, cx),
            Note::EndHost {
                subsystem,
                host_nqn,
                from,
            } => self.end_host(subsystem, (&host_nqn, from), cx),
            Note::EndQueue { connection, cntlid } => self.end_queue(connection, cntlid, cx),
            Note::Abort {
                connection,
                cid,
                from,
                asker,
            } => {
                let aborted = self.abort(connection, cid, cx);
                let answer = Note::Aborted { asker, aborted };
                self.core.shared.deliver(from, answer);
            }
            Note::Aborted { asker, aborted } => self.aborted(asker, aborted, cx),
            Note::Ended { asker } => self.answer_later(asker, 0, cx),
            Note::TakeBarrier(barrier) => self.take_barrier(&barrier, cx),
            Note::BarrierThrough(barrier) => self.barrier_through(&barrier, cx),
            Note::GiveUpBarrier(barrier) => self.barrier_overflows(&barrier, cx),
            Note::EndBarrier(barrier) => self.barrier_ended(&barrier, cx),
            Note::Shutdown => self.shut_down(cx),
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.run_timers(cx);
        self.run_devices(cx);
        self.run_barriers(cx);
        self.run_waiters(cx);
        self.run_tokens(cx);
        self.run_kicks(cx);
        self.run_actions(cx);
        self.run_output(cx);
        self.run_drain(cx);
        self.run_closing(cx);
        self.forget_silent(cx.now);
        self.trim(cx.now);
        self.steer(cx.now);
        self.scale(cx);
        self.run_moves(cx);
        self.core.publish(cx, self.connections.len());
    }

    fn deadline(&self) -> Time {
        let timers = [
            self.core.timers.next(),
            self.core.switch.held.next(),
            self.steering.deadline(),
            Some(self.core.tokens.deadline()),
            Some(self.core.barriers.deadline()),
            Some(self.scaling_deadline()),
        ];
        let mut deadline = timers.into_iter().flatten().min().unwrap_or(Time::NEVER);
        if self.core.unpublished {
            deadline = deadline.min(self.core.publish_at);
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
        let some_wait = !self.core.input_waiters.is_empty() || !self.core.share_waiters.is_empty();
        let work = self.core.switch.is_ready() || !self.core.actions.is_empty();
        let work = work || (self.core.went_on && some_wait) || self.core.lists.has_to_look();
        if work || !self.core.released.is_empty() {
            return Time::ZERO;
        }
        let namespaces = self.core.active.iter();
        let namespaces = namespaces.filter_map(|&(s, nsid)| self.core.namespace_ref(s, nsid));
        for namespace in namespaces.filter(|n| n.direct.is_none() || n.in_channel > 0) {
            deadline = deadline.min(namespace.channel.deadline());
            let stuck = !namespace.busy.is_empty() && namespace.in_channel == 0;
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
        let done = self.connections.is_empty() && self.core.closing_channels.is_empty();
        self.draining && (done || self.gave_up)
    }
}
