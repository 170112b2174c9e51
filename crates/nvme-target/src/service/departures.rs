//! Connections and listeners that leave for another process, and those that come from one.
//!
//! A connection leaves when nothing is in flight on it; from the request on, its commands are held.
//! An admin queue leaves after the I/O queues of its controller. Until every core has released
//! everything, the departure can be cancelled.

use crate::change::ack::Pausing;
use crate::controller::connect::NO_SUBSYSTEM;
use crate::controller::handed::HandedController;
use crate::controller::registry::{ConnectionPlace, ControllerKind, SharedController};
use crate::message::CoreMessage;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::moves::RELEASE;
use crate::service::poll_group::PollGroup;
use crate::session::handover::{MoveReason, PlannedMove};
use crate::session::transfer::R2tTerms;
use crate::shares::Purpose;
use crate::takeover::{
    Arrival, Departed, Departing, Departure, HandedFormat, HandedPair, HandedQueue,
};
use base::mutation::{self, Mutation};
use base::{SlabKey, Time};
use reactor::{Context, ListeningSocket, Op, OpKey, SocketOptions, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use switch::Class;
use transport::Receiver;
use wire::tcp::framer::{Framer, FramerLimits, Role};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;
use wire::tcp::{DataAlignment, PduFormat};

impl Connection {
    /// Holds further commands, and receives no more once nothing is outstanding.
    fn hold_commands(&mut self, here: usize) {
        if self.state() >= ConnectionState::Closing {
            return;
        }
        self.session.held.get_or_insert_default();
        let reason = MoveReason::TakenOver;
        self.plan_move(PlannedMove { to: here, reason });
    }

    /// Executes the commands that were held, and receives again. Returns false if a PDU behind them
    /// is incomplete, or input waits: they are executed after it, because their bytes would be taken
    /// for its rest.
    fn execute_held(&mut self, core: &mut CoreState, cx: &mut Context<'_>) -> bool {
        if self.session.held.is_none() || self.state() >= ConnectionState::Terminating {
            return true;
        }
        self.placement.moving = None;
        let is_whole = self.session.receiver.framer().is_between_pdus();
        let executes = is_whole && self.session.stalled.is_none();
        if let Some(held) = self.session.held.take_if(|_| executes) {
            if let Owner::Admin(controller) = &mut self.owner {
                controller.keep_alive.restart(cx.now);
                let deadline = controller.deadline(cx.now);
                self.arm(core, deadline);
            }
            self.take_input(&held.into_bytes(), core, cx);
        }
        self.arm_receive(core, cx);
        executes
    }

    /// Returns true if nothing is in flight, and no other connection depends on this one.
    fn may_depart(&self) -> bool {
        let is_alone = match &self.owner {
            Owner::Admin(controller) => {
                controller.shared.is_alone() && controller.registers.is_settled()
            }
            Owner::None | Owner::Io(_) => true,
        };
        let open = self.state() <= ConnectionState::Live;
        open && self.chap.is_none() && self.session.is_quiet() && is_alone
    }

    /// Removes the connection from a core that has released its socket. Returns its state.
    fn depart(mut self, core: &mut CoreState, now: Time) -> HandedQueue {
        let class = self.session.output.class();
        let class = class.filter(|_| self.placement.class_named);
        self.leave_fresh(core);
        self.closed(core);
        let here = ConnectionPlace {
            core: core.index,
            connection: self.key,
        };
        let terms = self.session.commands.terms();
        let queue = match &self.owner {
            Owner::None => None,
            Owner::Admin(controller) => Some((
                &controller.shared,
                Some(Box::new(HandedController::pack(controller, now))),
            )),
            Owner::Io(controller) => Some((controller, None)),
        };
        let queue = queue.map(|(shared, controller)| {
            core.disarm(shared);
            core.detach(shared);
            // Last, because it wakes the core of the admin queue.
            core.leave_queues(shared, terms.id, here, now);
            HandedPair {
                cntlid: shared.id,
                terms,
                class: class.map(|class| class.properties().name.to_owned()),
                controller,
            }
        });
        let PduFormat {
            header_digest,
            data_digest,
            alignment,
        } = *self.session.output.format();
        let framer = self.session.receiver.framer();
        let initialized = framer.is_initialized().then(|| HandedFormat {
            header_digest,
            data_digest,
            alignment: alignment.code(),
            r2ts: self.session.r2t.outstanding_max,
        });
        let held = self.session.held.take().unwrap_or_default();
        let mut rest = held.into_bytes();
        if mutation::active(Mutation::TakeOverDropsHeld) {
            rest.clear();
        }
        if !mutation::active(Mutation::TakeOverDropsPart) {
            rest.extend_from_slice(framer.carried().unwrap_or_default());
        }
        HandedQueue::new(
            (self.peer, self.local),
            core.index,
            initialized,
            queue,
            rest,
        )
    }

    /// Continues after ICReq with the terms of another process.
    fn reinitialize(&mut self, handed: HandedFormat, core: &mut CoreState) {
        let format = PduFormat {
            header_digest: handed.header_digest,
            data_digest: handed.data_digest,
            alignment: DataAlignment::from_code(handed.alignment).unwrap_or_default(),
        };
        let limits = FramerLimits {
            capsule_data_bytes: ADMIN_IN_CAPSULE_BYTES,
            data_pdu_bytes: core.limits.h2c_data_bytes,
        };
        let session = &mut self.session;
        session.receiver = Receiver::new(Framer::resumed(Role::Controller, limits));
        if !mutation::active(Mutation::TakeOverForgetsDigests) {
            session.receiver.set_digests(&format);
            session.output.set_format(format);
        }
        session.r2t = R2tTerms::new(handed.r2ts.max(1), &core.limits);
        self.enter(ConnectionState::AwaitingConnect, core);
    }
}

impl PollGroup {
    /// Releases the listeners, and the connections as soon as nothing is in flight on them.
    pub(super) fn depart(
        &mut self,
        departure: Arc<Departure>,
        mut debt: Pausing,
        cx: &mut Context<'_>,
    ) {
        let begins = self.departing.is_none();
        if self.departing.as_ref().is_some_and(|it| it.stays) {
            debt.fail("a core has not ended an earlier take-over: retry".to_owned());
            return self.has_ended(&departure);
        }
        let departing = self.departing.get_or_insert(Departing {
            departure,
            debt: None,
            releasing: 0,
            accepting: 0,
            stays: false,
        });
        if begins {
            for (address, listener) in std::mem::take(&mut self.listeners) {
                match cx.driver.release_listener(listener) {
                    Ok(socket) => {
                        departing.departure.left().listeners.push(socket);
                        departing.accepting += 1;
                    }
                    Err(error) => {
                        debt.fail(format!("cannot hand a listener over: {error}"));
                        self.listeners.push((address, listener));
                    }
                }
            }
            self.steering.leaving.clear();
            self.still_held.clear();
            // Commands that wait for tokens would delay all hosts.
            self.stop_scheduling(cx);
            for (_, connection) in self.connections.iter_mut() {
                connection.hold_commands(self.core.index);
            }
        }
        if let Some(departing) = &mut self.departing {
            departing.debt = Some(debt);
        }
    }

    /// Cancels the departure.
    pub(super) fn stay(&mut self, debt: Pausing) {
        if let Some(departing) = &mut self.departing {
            departing.stays = true;
            departing.debt = Some(debt);
        }
    }

    /// Returns true while connections leave for another process.
    pub(super) const fn departs(&self) -> bool {
        self.departing.is_some()
    }

    /// Holds the commands of a connection that arrived during the departure.
    pub(super) fn hold_arrived(&mut self, key: SlabKey) {
        if let (Some(_), Some(connection)) = (&self.departing, self.connections.get_mut(key)) {
            connection.hold_commands(self.core.index);
        }
    }

    /// Notes that a released listener accepts no more. Returns false if none was released.
    pub(super) fn accept_ended(&mut self) -> bool {
        let accepting = self.departing.as_mut().map(|it| &mut it.accepting);
        let Some(accepting) = accepting.filter(|accepting| **accepting > 0) else {
            return false;
        };
        *accepting -= 1;
        true
    }

    /// Releases connections, and acknowledges the departure once there are none.
    pub(super) fn run_departure(&mut self, cx: &mut Context<'_>) {
        let Some(departing) = &mut self.departing else {
            return self.execute_still_held(cx);
        };
        if departing.stays {
            if departing.releasing == 0 && departing.accepting == 0 {
                self.end_departure(cx);
            }
            return;
        }
        for (key, connection) in self.connections.iter_mut() {
            if connection.session.held.is_some() && connection.may_depart() {
                connection.enter(ConnectionState::Closing, &mut self.core);
                let operation = OpKey::new(self.core.op_namespace, RELEASE, key);
                let socket = connection.socket;
                cx.submit(operation, Op::Release { socket });
                departing.releasing += 1;
            }
        }
        let is_empty = self.connections.is_empty() && departing.accepting == 0;
        if is_empty || mutation::active(Mutation::TakeOverTooEarly) {
            departing.debt = None;
        }
    }

    /// Serves the connections that were not released.
    fn end_departure(&mut self, cx: &mut Context<'_>) {
        // Acknowledged when it is dropped.
        let departing = self.departing.take();
        if let Some(departing) = &departing {
            self.has_ended(&departing.departure);
        }
        self.core.unscheduled = false;
        for (key, connection) in self.connections.iter_mut() {
            if !connection.execute_held(&mut self.core, cx) {
                self.still_held.push(key);
            }
        }
    }

    /// Executes the held commands of connections that had received a part of a PDU behind them.
    fn execute_still_held(&mut self, cx: &mut Context<'_>) {
        self.still_held.retain(|&key| {
            let connection = self.connections.get_mut(key);
            connection.is_some_and(|connection| !connection.execute_held(&mut self.core, cx))
        });
    }

    /// Has all that was released served again, once every core has ended the departure.
    fn has_ended(&self, departure: &Departure) {
        let left = departure.ended();
        if let Some(left) = left.filter(|_| !mutation::active(Mutation::TakeOverNotUndone)) {
            self.core.shared.serve(left, None);
        }
    }

    /// Handles the release of a leaving connection's socket by the driver.
    pub(super) fn departed(&mut self, key: SlabKey, stream: Stream, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.remove(key) else {
            return;
        };
        let queue = Box::new(connection.depart(&mut self.core, cx.now));
        self.core.touch();
        if let Some(departing) = &mut self.departing {
            departing.releasing -= 1;
            let departed = Departed { stream, queue };
            departing.departure.left().connections.push(departed);
        }
    }

    /// Serves connections and listeners of another process, or those that did not leave.
    pub(super) fn take_over(&mut self, arrival: Arrival, cx: &mut Context<'_>) {
        let Arrival {
            mut connections,
            listeners,
            debt,
        } = arrival;
        // Controllers come before their I/O queues. A Connect that was held comes last, because it
        // takes an identifier.
        connections.sort_by_key(|Departed { queue, .. }| (queue.queue.is_none(), queue.is_io()));
        for connection in connections {
            let queue = connection.queue.queue.as_ref();
            let Some(queue) = queue.filter(|_| connection.queue.is_io()) else {
                self.join(connection, None, cx);
                continue;
            };
            let controller = self.core.shared.controllers().get(queue.cntlid).cloned();
            let Some(controller) = controller else {
                // Its admin queue ended, and its queues end with it.
                continue;
            };
            // Before the controller executes a command: a reset waits for this queue.
            controller.attach();
            let core = connection.queue.core % self.core.shared.core_stats.len();
            if core == self.core.index {
                self.join(connection, Some(controller), cx);
            } else {
                let queue = Box::new(connection);
                let note = CoreMessage::Join { queue, controller };
                self.core.shared.deliver(core, note);
            }
        }
        for (address, socket, options) in listeners {
            self.listen_again(address, socket, &options, cx);
        }
        drop(debt);
    }

    fn listen_again(
        &mut self,
        address: SocketAddr,
        socket: ListeningSocket,
        options: &SocketOptions,
        cx: &mut Context<'_>,
    ) {
        match cx.driver.adopt_listener(socket, options) {
            Ok((listener, _)) => {
                self.add_listener(address, listener);
                self.accept(listener, cx);
            }
            Err(error) => tracing::error!(%error, "a listener is lost"),
        }
    }

    /// Serves a connection of another process.
    pub(super) fn join(
        &mut self,
        connection: Departed,
        controller: Option<Arc<SharedController>>,
        cx: &mut Context<'_>,
    ) {
        let Departed { stream, queue } = connection;
        let peer = queue.peer;
        let room = !self.connections.is_full() && cx.driver.has_room_for_socket();
        let permit = self.core.shared.permits.take(peer.ip());
        let (Ok(permit), true) = (permit, room) else {
            tracing::error!(%peer, "no room for a connection of the process before: it is closed");
            self.part(controller.as_deref());
            return;
        };
        let (ends, now) = ((peer, queue.local), cx.now);
        let proven = stream.proven().cloned().map(Box::new);
        let socket = cx.driver.adopt(stream);
        let mut connection = Connection::new(socket, ends, permit, &mut self.core, now);
        connection.proven = proven;
        let Ok(key) = self.connections.insert(Box::new(connection)) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.set_key(key);
        if let Some(format) = queue.initialized {
            connection.reinitialize(format, &mut self.core);
        }
        let HandedQueue { queue, rest, .. } = *queue;
        let joined = match (queue, controller) {
            (None, _) => {
                self.fresh.push_back(key);
                Ok(())
            }
            (Some(queue), None) => connection.rejoin_admin(queue, &mut self.core, now),
            (Some(queue), Some(controller)) => {
                connection.rejoin_io(queue, controller, &mut self.core, cx)
            }
        };
        if let Err(reason) = joined {
            tracing::error!(%peer, reason, "a connection of the process before is closed");
            connection.close(&mut self.core, cx);
            return;
        }
        connection.take_input(&rest, &mut self.core, cx);
        connection.begin_receiving(&mut self.core, cx);
        connection.deliver_events(&mut self.core, cx);
        self.core.touch();
        self.hold_arrived(key);
    }

    /// Notes that an I/O queue, counted by its controller, has no connection.
    fn part(&self, controller: Option<&SharedController>) {
        if let Some(controller) = controller {
            self.core.disarm(controller);
            self.core.detach(controller);
        }
    }
}

impl Connection {
    /// Makes the connection the admin queue of the controller that comes with it.
    fn rejoin_admin(
        &mut self,
        queue: HandedPair,
        core: &mut CoreState,
        now: Time,
    ) -> Result<(), &'static str> {
        let Some(handed) = queue.controller else {
            return Err("its controller is missing");
        };
        let name = handed.subsystem.as_deref();
        let subsystem =
            name.map(|nqn| core.shared.subsystem(nqn).ok_or("its subsystem is missing"));
        let subsystem = subsystem.transpose()?;
        let index = subsystem.as_ref().map_or(NO_SUBSYSTEM, |it| it.index);
        let patience = match handed.kind {
            ControllerKind::Io => core.limits.controller_idle_timeout,
            ControllerKind::Discovery => core.limits.discovery_idle_timeout,
        };
        let admin = ConnectionPlace {
            core: core.index,
            connection: self.key,
        };
        let rules = core.shared.rules();
        let ends = (self.peer, admin);
        let controller = handed.unpack(queue.cntlid, subsystem, ends, patience, (&rules, now));
        let shared = Arc::clone(&controller.shared);
        if !core.shared.controllers().insert_as(Arc::clone(&shared)) {
            return Err("its controller identifier is taken");
        }
        shared.attach();
        // As long as its host has authenticated by a secret that is still valid.
        let keys = core.shared.keys.current();
        shared.standing().check(&shared.host_nqn, &keys);
        let tenant = shared.standing().tenant.clone();
        self.own(controller, index, core);
        self.session.commands.accept(queue.terms);
        self.enter_permit(tenant.as_ref(), core)?;
        self.become_admin(core);
        Ok(())
    }

    /// Makes the connection an I/O queue of a controller.
    fn rejoin_io(
        &mut self,
        queue: HandedPair,
        controller: Arc<SharedController>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let rules = core.shared.rules();
        let index = controller
            .subsystem
            .as_ref()
            .map_or(NO_SUBSYSTEM, |it| it.index);
        let decision = controller.decide_from(&rules, self.peer.ip());
        let tenant = controller.standing().tenant.clone();
        self.owner = Owner::Io(Arc::clone(&controller));
        self.access.subsystem = index;
        if !mutation::active(Mutation::TakeOverForgetsRights) {
            self.access.rights = decision.rights();
        }
        let qid = queue.terms.id;
        self.session.commands.accept(queue.terms);
        let class = queue.class.and_then(|name| name.parse::<Class>().ok());
        self.set_class(class, core, cx);
        self.enter_permit(tenant.as_ref(), core)?;
        let place = ConnectionPlace {
            core: core.index,
            connection: self.key,
        };
        let mut queues = controller.queues();
        if queues.dead || !queues.ready || queues.places.contains_key(&qid) {
            return Err("its controller was reset");
        }
        queues.places.insert(qid, place);
        drop(queues);
        self.set_purpose(Purpose::Data, core);
        self.assign_token_queues(core);
        self.go_live(core.limits.in_capsule_bytes, core);
        Ok(())
    }

    /// Counts the entries of the queue.
    fn enter_permit(
        &mut self,
        tenant: Option<&Arc<str>>,
        core: &CoreState,
    ) -> Result<(), &'static str> {
        let entries = self.session.commands.entries() as usize;
        let entered = self.permit.enter(entries, tenant, &core.limits);
        entered.map_err(|_| "a limit of connections or queue entries is reached")
    }

    /// Receives, and waits for Connect if there was none.
    fn begin_receiving(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.is_fresh() {
            self.arm(core, self.deadlines.opened + core.limits.connect_timeout);
        }
        self.limit_receives(None, core, cx);
        self.arm_receive(core, cx);
    }
}
