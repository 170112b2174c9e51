//! A connection: its session, the controller that owns it, and its accounts on the core.
//!
//! Owned by its core's poll group. It never blocks. Invariant: no input from the peer has a worse
//! effect than the end of this connection.

use crate::authentication::exchange::Chap;
use crate::command::blocks::Admitted;
use crate::command::table::CommandKind;
use crate::controller::connect::NO_SUBSYSTEM;
use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::controller::state::Controller;
use crate::limits::ATTEMPTS_MAX;
use crate::permit::ConnectionPermit;
use crate::qos::access::Rights;
use crate::qos::core::TokenQueue;
use crate::request::{CommandState, Ticket};
use crate::reservation::state::HostId;
use crate::service::connection_state::ConnectionState;
use crate::service::core::{Action, CoreState};
use crate::session::Session;
use crate::session::handover::PlannedMove;
use crate::session::output::Output;
use crate::shares::{Holding, Purpose};
use crate::switch::threads::Counted;
use base::mutation::{self, Mutation};
use base::{SlabKey, Time};
use reactor::tls::Proven;
use reactor::{Context, Op, OpKey, SocketId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use switch::Class;
use switch::demand::Demand;
use switch::doorbell::{Mode, Urgency};
use wire::nvme::{Command, Status};
use wire::tcp::framer::FramerLimits;
use wire::tcp::{IcReq, PduFormat};

/// Kind of the operation that closes a socket.
pub(crate) const CLOSE: u8 = 3;

/// Controller that a queue pair belongs to.
#[derive(Debug)]
pub(crate) enum Owner {
    /// No controller: Connect has not succeeded yet.
    None,
    /// It is the admin queue of this controller.
    Admin(Box<Controller>),
    /// It is an I/O queue of this controller.
    Io(Arc<SharedController>),
}

impl Owner {
    /// Returns the HOSTID of the host of an I/O queue; all zeroes for other connections.
    #[inline]
    pub(crate) fn host_id(&self) -> &HostId {
        match self {
            Self::Io(controller) => &controller.host_id,
            Self::None | Self::Admin(_) => &[0; 16],
        }
    }
}

/// Rights and accounts of a connection's host in its subsystem.
#[derive(Debug)]
pub(crate) struct Access {
    /// Index of the subsystem on every core.
    pub(crate) subsystem: u32,
    /// Rights that the commands of an I/O queue are checked against; `None` if all are allowed.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Queues in which its commands wait for tokens, by namespace identifier minus 1.
    pub(crate) token_queues: Vec<Option<TokenQueue>>,
}

/// Placement of an I/O queue among the threads. `[blk-switch §3.3]`
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Load of the queue.
    pub(crate) demand: Demand,
    /// Thread on the core that received the queue's packets when it was connected; `None` if it is
    /// not among the first 256.
    pub(crate) home: Option<u8>,
    /// The move that waits for a quiet moment.
    pub(crate) moving: Option<PlannedMove>,
    /// The queue's entry in the queue count of its thread, or of the thread that it moves to.
    pub(crate) counted: Option<Counted>,
    /// The host named the queue's class.
    pub(crate) class_named: bool,
}

/// Deadlines of a connection.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Time at which this thread began to serve the connection.
    pub(crate) opened: Time,
    /// Time by which commands that a change waits for must have their data.
    pub(crate) change: Time,
    /// Time by which a terminating or draining connection closes at the latest.
    pub(crate) close: Time,
    /// Expiry of the timer that is set.
    pub(crate) timer: Time,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: SlabKey,
    pub(crate) socket: SocketId,
    pub(crate) peer: SocketAddr,
    /// The local address, if known.
    pub(crate) local: Option<SocketAddr>,
    /// What TLS proved about the host.
    pub(crate) proven: Option<Box<Proven>>,
    /// The authentication of the queue in progress.
    pub(super) chap: Option<Box<Chap>>,
    state: ConnectionState,
    pub(crate) session: Session,
    pub(crate) owner: Owner,
    pub(crate) access: Access,
    pub(crate) placement: Placement,
    pub(crate) deadlines: Deadlines,
    /// Buffers of the core that the connection holds.
    pub(crate) holding: Holding,
    /// The connection counts as fresh on its core.
    fresh: bool,
    /// Commands that arrived while the connection was fresh.
    attempts: u8,
    /// The slot of a Disconnect that waits for the other commands of the queue.
    pub(super) disconnecting: Option<u16>,
    /// Nothing of the connection can change data any more, and its controller has been notified.
    pub(super) disarmed: bool,
    pub(crate) permit: ConnectionPermit,
}

/// Key of a connection that is not in the core's table yet.
const UNPLACED: SlabKey = SlabKey {
    index: 0,
    generation: 0,
};

impl Connection {
    pub(crate) fn new(
        socket: SocketId,
        (peer, local): (SocketAddr, Option<SocketAddr>),
        permit: ConnectionPermit,
        core: &mut CoreState,
        now: Time,
    ) -> Self {
        core.connections.fresh += 1;
        let output = Output::new(UNPLACED, socket, core.accounts.fresh());
        Self {
            key: UNPLACED,
            socket,
            peer,
            local,
            proven: None,
            chap: None,
            state: ConnectionState::AwaitingIcReq,
            session: Session::new(output, &core.limits, now),
            owner: Owner::None,
            access: Access {
                subsystem: NO_SUBSYSTEM,
                rights: None,
                token_queues: Vec::new(),
            },
            placement: Placement::default(),
            deadlines: Deadlines {
                opened: now,
                change: Time::NEVER,
                close: Time::NEVER,
                timer: Time::NEVER,
            },
            holding: Holding::new(core.accounts.fresh()),
            fresh: true,
            attempts: 0,
            disconnecting: None,
            disarmed: false,
            permit,
        }
    }

    #[inline]
    pub(crate) const fn state(&self) -> ConnectionState {
        self.state
    }

    /// Moves the connection to another state and counts it there.
    ///
    /// # Panics
    /// When the state machine has no such move.
    pub(crate) fn enter(&mut self, next: ConnectionState, core: &mut CoreState) {
        let before = self.state;
        assert!(
            before.may_become(next),
            "a connection goes from {} to {}",
            before.name(),
            next.name()
        );
        core.connections.entered[next as usize] += 1;
        tracing::trace!(peer = %self.peer, state = next.name());
        self.state = next;
    }

    /// Sets the connection's key in the core's table.
    pub(crate) fn set_key(&mut self, key: SlabKey) {
        self.key = key;
        self.session.output.set_key(key, self.socket);
    }

    /// Returns the ticket of one of its slots.
    #[inline]
    pub(crate) const fn ticket(&self, slot: u16) -> Ticket {
        Ticket {
            connection: self.key,
            slot,
        }
    }

    /// Returns the queue in which commands to a namespace wait for tokens; `None` without a tenant,
    /// or if the namespace is not scheduled.
    #[inline]
    pub(crate) fn token_queue(&self, nsid: u32) -> Option<TokenQueue> {
        let index = (nsid as usize).wrapping_sub(1);
        self.access.token_queues.get(index).copied().flatten()
    }

    /// Makes the connection an I/O queue, of the class that its host named, if any.
    pub(crate) fn set_class(
        &mut self,
        named: Option<Class>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let class = named.unwrap_or(Class::DEFAULT);
        self.placement.class_named = named.is_some();
        core.connections.classes[class] += usize::from(named.is_some());
        core.switch.queues[class] += 1;
        self.placement.counted = Some(core.shared.threads.count(class, core.index));
        self.session.output.set_class(class, &mut core.sends());
        cx.driver.set_class(self.socket, class);
    }

    /// Handles an answer with this many bytes of data, or an R2T, after it was appended to the send
    /// lists.
    #[inline]
    pub(crate) fn appended(
        &mut self,
        bytes: u32,
        urgency: Urgency,
        core: &mut CoreState,
        cx: &Context<'_>,
    ) {
        let in_flight = self.session.commands.used();
        let output = &mut self.session.output;
        output.appended(bytes, urgency, in_flight, &mut core.sends(), cx);
    }

    /// Starts to receive; the host must send ICReq.
    pub(crate) fn start(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        self.arm(core, self.deadlines.opened + core.limits.connect_timeout);
        self.limit_receives(None, core, cx);
        self.arm_receive(core, cx);
    }

    /// Returns the controller that the connection belongs to.
    pub(crate) fn controller(&self) -> Option<&Arc<SharedController>> {
        match &self.owner {
            Owner::None => None,
            Owner::Admin(controller) => Some(&controller.shared),
            Owner::Io(controller) => Some(controller),
        }
    }

    /// Returns true while commands are executed and answered.
    pub(crate) fn answers(&self) -> bool {
        self.state <= ConnectionState::Draining
    }

    /// Returns true until Connect, and the authentication that it requires, have succeeded, or the
    /// connection ends.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Counts a command of a fresh connection; returns false if it exceeds the limit.
    pub(crate) fn try_connect(&mut self) -> bool {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts <= ATTEMPTS_MAX
    }

    /// Ends the fresh state of the connection.
    pub(crate) fn leave_fresh(&mut self, core: &mut CoreState) {
        if std::mem::take(&mut self.fresh) {
            core.connections.fresh -= 1;
        }
    }

    /// Applies the terms of ICReq; the answer is still to be sent. `[NVMe-TCP 1.0 §3.3.1]`
    pub(crate) fn initialize(&mut self, request: &IcReq, core: &mut CoreState) {
        self.session.initialize(
            PduFormat {
                header_digest: request.header_digest && core.limits.header_digest,
                data_digest: request.data_digest && core.limits.data_digest,
                alignment: request.host_alignment,
            },
            request.max_r2t,
            &core.limits,
        );
        self.enter(ConnectionState::AwaitingConnect, core);
    }

    /// Makes the connection a live queue after Connect.
    pub(crate) fn go_live(&mut self, capsule_data_bytes: u32, core: &mut CoreState) {
        self.leave_fresh(core);
        self.enter(ConnectionState::Live, core);
        self.accept_data(capsule_data_bytes, core);
    }

    /// Sets the limits of data that the host may send.
    pub(crate) fn accept_data(&mut self, capsule_data_bytes: u32, core: &CoreState) {
        self.session.connected = true;
        self.session.receiver.framer_mut().set_limits(FramerLimits {
            capsule_data_bytes,
            data_pdu_bytes: core.limits.h2c_data_bytes,
        });
    }

    /// Sets the purpose after the host, tenant and class are known, and charges the connection's
    /// holdings to them.
    pub(crate) fn set_purpose(&mut self, purpose: Purpose, core: &mut CoreState) {
        let Some(controller) = self.controller() else {
            return;
        };
        let parties = if purpose == Purpose::Discovery {
            core.accounts.discovery(self.peer.ip())
        } else {
            let tenants = controller.tenants(&core.shared.rules());
            let host = (&*controller.host_nqn, self.peer.ip());
            let (tenant, class) = (tenants.held_to_account(), self.session.output.class());
            core.accounts.parties(purpose, host, tenant, class)
        };
        self.holding.belongs_to(Rc::clone(&parties));
        self.session.output.set_parties(parties);
    }

    /// Takes a slot for an I/O command.
    ///
    /// # Errors
    /// Internal Error when the table is full: its host has more commands in flight than the queue
    /// has entries.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        command: &Command,
        admitted: &Admitted,
        core: &mut CoreState,
        now: Time,
    ) -> Result<u16, Status> {
        let commands = &mut self.session.commands;
        let slot = commands.take(command.cid(), &mut core.states);
        let slot = slot.ok_or(Status::INTERNAL_ERROR)?;
        let entry = commands.slot(slot);
        entry.kind = admitted.kind;
        entry.opcode = command.opcode();
        entry.nsid = admitted.nsid;
        entry.accounting.began = now;
        entry.accounting.incarnation = admitted.incarnation;
        if core.traces.is_on() {
            let stamps = self.stamps(command, admitted, core, now);
            self.session.commands.slot(slot).stamps = Some(stamps);
        }
        Ok(slot)
    }

    /// Charges the buffer of a command's data to the connection until the command is answered.
    pub(crate) fn hold(&mut self, slot: u16, bytes: u32) {
        self.session.commands.slot(slot).transfer.held_bytes += bytes;
        self.holding.take(bytes);
    }

    /// Releases the connection's charge for a command's buffers.
    pub(crate) fn release_buffers(&mut self, slot: u16) {
        let transfer = &mut self.session.commands.slot(slot).transfer;
        let held = std::mem::take(&mut transfer.held_bytes);
        self.holding.give_back(held);
    }

    /// Frees the slot of a command that has ended.
    pub(crate) fn free(&mut self, slot: u16, core: &mut CoreState) {
        self.release_buffers(slot);
        let entry = self.session.commands.slot(slot);
        debug_assert_eq!(entry.order.waits, 0, "it has left the line");
        if let Some(table) = entry.extents.take() {
            self.holding.give_back_table();
            core.tables.give_back(table);
        }
        if !core.aborts.is_empty() {
            core.end_aborts(self.ticket(slot));
        }
        self.session.commands.give_back(slot);
    }

    /// Counts the bytes of a command as outstanding, for the queue and for its class on the core.
    pub(crate) fn begin_outstanding(&mut self, slot: u16, core: &mut CoreState) {
        let entry = self.session.commands.slot(slot);
        let bytes = u64::from(entry.transfer.length);
        entry.accounting.outstanding = true;
        self.placement.demand.outstanding += bytes;
        if let Some(class) = self.session.output.class() {
            core.switch.outstanding[class] += bytes;
        }
    }

    /// Charges the device work of a command without a buffer, until it ends.
    pub(crate) fn begin_work(&mut self, slot: u16) {
        let entry = self.session.commands.slot(slot);
        entry.accounting.works = true;
        self.holding.begin_work(entry.transfer.work_bytes.into());
    }

    /// Releases the charge for a command's device work.
    pub(crate) fn end_work(&mut self, slot: u16) {
        let entry = self.session.commands.slot(slot);
        if std::mem::take(&mut entry.accounting.works) {
            self.holding.end_work(entry.transfer.work_bytes.into());
        }
    }

    /// Stops counting the bytes of a command as outstanding.
    pub(crate) fn end_outstanding(&mut self, slot: u16, core: &mut CoreState) {
        let entry = self.session.commands.slot(slot);
        if !std::mem::take(&mut entry.accounting.outstanding) {
            return;
        }
        let bytes = u64::from(entry.transfer.length);
        self.placement.demand.outstanding -= bytes;
        if let Some(class) = self.session.output.class() {
            core.switch.outstanding[class] -= bytes;
        }
    }
}

impl Connection {
    /// Ends the connection; the driver closes the socket exactly once.
    pub(crate) fn close(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state() >= ConnectionState::Closing {
            return;
        }
        self.leave_fresh(core);
        self.enter(ConnectionState::Closing, core);
        self.chap = None;
        self.drop_input(core);
        let key = OpKey::new(core.op_namespace, CLOSE, self.key);
        cx.submit(
            key,
            Op::Close {
                socket: self.socket,
            },
        );
        match &self.owner {
            Owner::None => {}
            Owner::Admin(controller) => {
                // Set at once, so that no queue joins after the admin queue is gone.
                controller.shared.queues().dead = true;
                core.actions
                    .push(Action::EndController(Arc::clone(&controller.shared)));
            }
            Owner::Io(controller) => self.leave_queues(controller, core, cx.now),
        }
    }

    /// Removes the queue from its controller; its identifier may then be reused.
    pub(super) fn leave_queues(&self, controller: &SharedController, core: &CoreState, now: Time) {
        let here = ConnectionPlace {
            core: core.index,
            connection: self.key,
        };
        core.leave_queues(controller, self.session.commands.id, here, now);
    }

    /// Handles Disconnect: executes no further command of the queue; the answer is the last one.
    pub(crate) fn disconnect(&mut self, slot: u16, core: &mut CoreState, cx: &mut Context<'_>) {
        self.disconnecting = Some(slot);
        self.drain(core, cx);
    }

    /// Answers a Disconnect once every other command of the queue is answered. When the host
    /// receives the answer, the queue no longer exists: a new connection may use its identifier at
    /// once, although this one stays for a moment. `[NVMe Base 2.0 §6.4]`
    fn disconnected(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let last = self.session.commands.used() == 1 && self.session.stalled.is_none();
        let Some(slot) = self.disconnecting.take_if(|_| last) else {
            return;
        };
        if let Owner::Io(controller) = &self.owner {
            let controller = Arc::clone(controller);
            self.leave_queues(&controller, core, cx.now);
            // End Controller no longer finds the queue, and need not wait for it.
            self.disarmed = true;
            core.disarm(&controller);
        }
        self.run(slot, core, cx).finish(Status::SUCCESS);
    }

    /// Handles the close or release of the socket by the driver: commands that wait for the host
    /// cannot complete.
    pub(crate) fn closed(&mut self, core: &mut CoreState) {
        self.enter(ConnectionState::Closed, core);
        let unsent = self.session.output.abandon(&mut core.sends());
        self.holding.give_back(unsent);
        core.traces.forget(self.key);
        if let Some(class) = self.session.output.class() {
            core.connections.classes[class] -= usize::from(self.placement.class_named);
            core.switch.queues[class] -= 1;
            self.placement.counted = None;
            core.switch.load[class] -= self.placement.demand.forget();
        }
        self.release_token_queues(core);
        for slot in self.session.commands.occupied() {
            let entry = self.session.commands.slot(slot);
            // An admin command is never in a device: it waits for another core or for the end of
            // another controller, which may take long.
            if entry.state() != CommandState::Executing || entry.kind == CommandKind::Admin {
                self.forget(slot, core);
            }
        }
    }

    /// Returns true once, when nothing of the connection can change data any more; its controller
    /// counts such connections.
    pub(crate) fn disarm(&mut self) -> bool {
        let outlives = mutation::active(Mutation::CommandOutlives);
        let harmless = self.state() == ConnectionState::Closed
            && (outlives || !self.session.commands.changes_data());
        harmless && !std::mem::replace(&mut self.disarmed, true)
    }

    /// Returns true when nothing of the connection is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.state() == ConnectionState::Closed && self.session.commands.used() == 0
    }

    /// Drains the connection: executes no further command, answers those in flight, then closes.
    pub(crate) fn drain(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        match self.state() {
            ConnectionState::Live => {
                self.enter(ConnectionState::Draining, core);
                let output = &mut self.session.output;
                output.set_mode(Mode::Immediate, &mut core.sends());
                core.connections.draining.push(self.key);
                self.deadlines.close = cx.now + core.limits.drain_timeout;
                self.arm(core, self.deadlines.close);
                self.end_first(Status::ABORTED_MISSING_FUSED, core, cx);
                self.drained(core, cx);
            }
            ConnectionState::AwaitingIcReq | ConnectionState::AwaitingConnect => {
                self.close(core, cx);
            }
            _ => {}
        }
    }

    /// Closes a draining connection shortly after its last answer.
    pub(crate) fn drained(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state() == ConnectionState::Draining {
            self.disconnected(core, cx);
        }
        if self.state() == ConnectionState::Draining && self.is_drained() {
            // A close with unread input would reset the connection, and the reset may overtake the
            // last answers. The linger time lets the host read them and close first.
            let soon = cx.now + core.limits.linger;
            if soon < self.deadlines.close {
                self.deadlines.close = soon;
                self.arm(core, soon);
            }
        }
    }

    /// Returns true once nothing is left to answer.
    pub(crate) fn is_drained(&self) -> bool {
        let session = &self.session;
        session.commands.used() == 0
            && session.output.is_idle()
            && session.stalled.is_none()
            // The I/O queues end with their admin queue; their commands may stay in a device for
            // long.
            && !self.has_queues()
    }

    /// Returns true while I/O queues of this admin queue's controller are connected.
    fn has_queues(&self) -> bool {
        match &self.owner {
            Owner::Admin(controller) => !controller.shared.queues().places.is_empty(),
            Owner::None | Owner::Io(_) => false,
        }
    }
}

impl Connection {
    /// Assigns the token queues that the host has by the current rules. A command that waits in a
    /// queue of the former tenant passes its gates again.
    pub(crate) fn assign_token_queues(&mut self, core: &mut CoreState) {
        if self.state() == ConnectionState::Closed {
            return;
        }
        let before = std::mem::take(&mut self.access.token_queues);
        let scheduled = core.scheduled(self.access.subsystem);
        let controller = self.controller().filter(|_| !scheduled.is_empty());
        if let Some(tenants) = controller.map(|c| c.tenants(&core.shared.rules())) {
            for (nsid, scheduler) in scheduled {
                let tenant = tenants.tenant(nsid);
                let queue = tenant.and_then(|tenant| core.tokens.attach(scheduler, tenant));
                self.access.token_queues.resize(nsid as usize, None);
                self.access.token_queues[nsid as usize - 1] = queue;
            }
        }
        let kept = |nsid: u32, queue| self.token_queue(nsid) == Some(queue);
        let left: BTreeSet<TokenQueue> = (1..)
            .zip(&before)
            .filter_map(|(nsid, queue)| queue.filter(|&queue| !kept(nsid, queue)))
            .collect();
        for ticket in self.withdraw_from(&left, &before, core) {
            // Like a command of a paused namespace that opened again.
            let entry = self.session.commands.slot(ticket.slot);
            entry.enter(CommandState::WaitingForNamespace, &mut core.states);
            core.waiters.released.push_back(ticket);
        }
        for queue in before.into_iter().flatten() {
            core.tokens.detach(queue);
        }
    }

    /// Removes the closed connection's commands from all token queues.
    pub(crate) fn release_token_queues(&mut self, core: &mut CoreState) {
        let queues = std::mem::take(&mut self.access.token_queues);
        let left = queues.iter().copied().flatten().collect();
        self.withdraw_from(&left, &queues, core);
        for queue in queues.into_iter().flatten() {
            core.tokens.detach(queue);
        }
    }

    /// Removes the connection's commands from the queues `left`, given its former queues `had`.
    fn withdraw_from(
        &mut self,
        left: &BTreeSet<TokenQueue>,
        had: &[Option<TokenQueue>],
        core: &mut CoreState,
    ) -> Vec<Ticket> {
        let mut waiting: BTreeMap<TokenQueue, Vec<(u32, Ticket)>> = BTreeMap::new();
        for slot in self.session.commands.occupied() {
            let ticket = self.ticket(slot);
            let entry = self.session.commands.slot(slot);
            if entry.state() != CommandState::WaitingForTokens {
                continue;
            }
            let queue = had.get(entry.paying_namespace() as usize - 1);
            if let Some(queue) = queue
                .copied()
                .flatten()
                .filter(|queue| left.contains(queue))
            {
                let commands = waiting.entry(queue).or_default();
                commands.push((entry.order.line, ticket));
            }
        }
        let mut taken = Vec::new();
        for (queue, mut commands) in waiting {
            core.tokens.withdraw_all(queue, &mut commands, &mut taken);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // Slots, lists and buffers are allocated with the first command that needs them, so an
        // unused connection takes only this memory.
        assert!(
            size_of::<Connection>() <= 1024,
            "{}",
            size_of::<Connection>()
        );
    }
}
