//! Input of connections: receives, their commands, and buffers for in-capsule data.

use crate::request::CommandState;
use crate::service::answers::take_buffer;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::requests::Running;
use crate::service::wait_lists::{INPUT, WaitsFor};
use crate::session::Stalled;
use crate::session::event::{Delivery, Event, Payload, Violation};
use crate::session::transfer::Incoming;
use base::Time;
use base::mutation::{self, Mutation};
use reactor::limits::BOUNDED_SEND_BYTES;
use reactor::{Context, IoSlice, Op, OpKey, Received};
use std::io::{Error, ErrorKind};
use std::num::NonZeroUsize;
use switch::doorbell::Urgency;
use switch::light_hosts::Asked;
use wire::nvme::{Command, FabricsType, Status};
use wire::tcp::limits::{ADMIN_IN_CAPSULE_BYTES, PREFIX_BYTES_MAX};
use wire::tcp::{CapsuleCmd, FatalErrorStatus};

/// A command that has arrived but has no slot yet.
#[derive(Debug)]
pub(crate) struct Arrival<'a, 'd> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) command: &'a Command,
    pub(crate) payload: Payload<'a>,
    pub(crate) core: &'a mut CoreState,
    pub(crate) cx: &'a mut Context<'d>,
}

/// Why a command was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// It is answered with this status.
    Refused(Status),
    /// It waits for a buffer in this list, and all input behind it waits, too.
    Stalled(WaitsFor),
}

impl From<Status> for NotTaken {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<WaitsFor> for NotTaken {
    fn from(list: WaitsFor) -> Self {
        Self::Stalled(list)
    }
}

/// Kind of a receive operation.
pub(crate) const RECEIVE: u8 = 2;

/// Bytes per receive that a connection discards after its termination request, while a light host
/// is active.
const DISCARD_QUANTUM: NonZeroUsize = NonZeroUsize::new(BOUNDED_SEND_BYTES).expect("not 0");

impl Connection {
    /// Handles the end of a receive.
    pub(crate) fn received(
        &mut self,
        mut received: Received,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        self.session.received(&mut received, cx.now);
        core.touch();
        if let Err(error) = &received.result {
            self.broken(error, core, cx);
            return;
        }
        let commands = core.stats.io_commands;
        let admin_commands = core.stats.admin_commands;
        let outstanding = self.placement.demand.outstanding;
        let mut received_bytes = 0;
        let urgent = self.is_urgent();
        if urgent {
            core.switch.note_urgent(cx.now);
        }
        if self.state() < ConnectionState::Terminating {
            let bytes = match &received.rest {
                Some((buffer, length)) => &buffer[..*length],
                None => &[][..],
            };
            received_bytes = bytes.len() as u64;
            self.take_input(bytes, core, cx);
        }
        drop(received.rest);
        let demand = &self.placement.demand;
        let data_bytes = demand.outstanding + demand.answered;
        let asked = Asked {
            commands: core.stats.io_commands - commands,
            data_bytes: data_bytes.saturating_sub(outstanding),
            received_bytes,
        };
        if core.stats.io_commands != commands {
            self.sample_demand(core, cx.now);
            if urgent {
                core.switch.note_urgent_commands(cx.now);
            }
        }
        let any = asked.commands > 0 || core.stats.admin_commands != admin_commands;
        if any || self.state() >= ConnectionState::Terminating {
            self.limit_receives(Some(asked), core, cx);
        }
        self.arm_receive(core, cx);
    }

    /// Handles the kernel's loss of the connection to the host.
    pub(crate) fn broken(&mut self, error: &Error, core: &mut CoreState, cx: &mut Context<'_>) {
        let open = self.state() < ConnectionState::Closing;
        if open && error.kind() == ErrorKind::TimedOut {
            core.stats.socket_timeouts += 1;
            core.touch();
        }
        self.close(core, cx);
    }

    /// Sets the size limit of the next receives: while a light host is active, a heavy host gets
    /// one caravan per turn. `asked` is the demand in the last receive, if there was one.
    pub(super) fn limit_receives(
        &mut self,
        asked: Option<Asked>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        if self.state() >= ConnectionState::Closing {
            return;
        }
        let hosts = &mut core.switch.light_hosts;
        let mut host = self.holding.host().get();
        let quantum = match (self.session.output.class(), asked) {
            (Some(class), Some(asked)) => {
                let quantum = hosts.asked(&mut host, asked, cx.now);
                // Strict priority has quanta of its own.
                quantum.filter(|_| class.properties().may_wait)
            }
            (Some(_), None) => None,
            (None, _) => hosts.control_quantum(&host, cx.now),
        };
        self.holding.host().set(host);
        let quantum = quantum.filter(|_| core.switch.knobs().light_hosts);
        // Input after a termination request is discarded as early as possible. Output queued before
        // the request is still sent in pieces.
        let ends = self.state() >= ConnectionState::Terminating;
        let quantum = quantum.map(|quantum| {
            if ends {
                quantum.max(DISCARD_QUANTUM)
            } else {
                quantum
            }
        });
        if quantum != self.session.receive_quantum {
            self.session.receive_quantum = quantum;
            cx.driver.set_receive_quantum(self.socket, quantum);
        }
    }

    /// Returns true if input must not wait for input of other I/O queues.
    fn is_urgent(&self) -> bool {
        let class = self.session.output.class();
        class.is_some_and(|class| !class.properties().may_wait)
    }

    /// Updates the load of an I/O queue and of its core after commands arrived.
    fn sample_demand(&mut self, core: &mut CoreState, now: Time) {
        let Some(class) = self.session.output.class() else {
            return;
        };
        let (before, after) = self.placement.demand.sample(now);
        let load = &mut core.switch.load[class];
        *load = *load - before + after;
    }

    /// Processes input; keeps the part behind a command that has to wait for a buffer.
    pub(super) fn take_input(&mut self, bytes: &[u8], core: &mut CoreState, cx: &mut Context<'_>) {
        let left = self.consume(bytes, core, cx);
        if let Some(stalled) = &mut self.session.stalled {
            stalled.input = bytes[bytes.len() - left..].to_vec();
        }
    }

    /// Processes input until it is used up, or until a command has to wait for a buffer. Returns
    /// the number of bytes behind that command; 0 if none waits.
    fn consume(&mut self, bytes: &[u8], core: &mut CoreState, cx: &mut Context<'_>) -> usize {
        let mut input = bytes;
        let mut left = 0;
        self.session.begin_input();
        while self.state() < ConnectionState::Terminating {
            match self.session.next(&mut input) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if self.take_event(event, core, cx).is_some() {
                        left = input.len();
                        break;
                    }
                }
                Err(violation) => {
                    let is_first = self.state() == ConnectionState::AwaitingIcReq;
                    let tls =
                        Violation::of_tls(bytes).filter(|_| is_first && self.proven.is_none());
                    self.terminate(&tls.unwrap_or(violation), core, cx);
                    break;
                }
            }
        }
        core.stores.order();
        let digest_errors = std::mem::take(&mut self.session.digest_errors);
        core.stats.data_digest_errors += digest_errors;
        if self.session.end_input(cx.now) {
            self.arm(core, cx.now + core.limits.pdu_timeout);
        }
        core.touch();
        left
    }

    /// Handles an event; returns the list in which its command waits, if it was not accepted.
    #[inline]
    fn take_event(
        &mut self,
        event: Event<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Option<WaitsFor> {
        if !matches!(event, Event::Command(..)) {
            core.stores.order();
        }
        match event {
            Event::Command(command, payload) => {
                return self.take_command(&command, payload, core, cx);
            }
            Event::Data(Delivery::Nothing) => {}
            Event::Data(Delivery::Partial(slot)) => self.send_r2ts(slot, core, cx),
            Event::Data(Delivery::Whole(slot)) => self.run(slot, core, cx).arrived(),
            Event::Initialize(request) => {
                self.initialize(&request, core);
                self.answer_ic_req(core, cx);
            }
            Event::Terminated(status) => {
                core.stats.terminations_received += 1;
                if let Some(suppressed) = core.log_budget.allow(self.peer.ip(), cx.now) {
                    let peer = self.peer;
                    tracing::warn!(%peer, %status, suppressed, "the host terminated a connection");
                }
                self.close(core, cx);
            }
            Event::Unexpected => self.close(core, cx),
        }
        None
    }

    /// Retries the command for which input waits, after it left its list. Returns true if input
    /// continues; otherwise it is again the last of a list.
    pub(crate) fn resume_input(&mut self, core: &mut CoreState, cx: &mut Context<'_>) -> bool {
        let Some(mut stalled) = self.session.stalled.take() else {
            return true;
        };
        let payload = match &stalled.data {
            Some((data, digest_ok)) => Payload::Whole(data, *digest_ok),
            None if stalled.arriving == 0 => Payload::None,
            None => Payload::Arriving(stalled.arriving),
        };
        core.traces.received = Some(stalled.received);
        let waits = self.dispatch(&stalled.command, payload, core, cx);
        core.traces.received = None;
        if let Some(list) = waits {
            stalled.waits = core.waiters.lists.push(list, self.ticket(INPUT));
            self.session.stalled = Some(stalled);
            return false;
        }
        core.waiters.first = false;
        // Time during which the input waited does not count against the host.
        (self.session.last_input, self.session.resumed) = (cx.now, cx.now);
        if self.session.transferring > 0 {
            let limits = &core.limits;
            let patience = limits.stall_timeout.min(limits.transfer_timeout);
            self.arm(core, cx.now + patience);
        }
        let Stalled { input, taken, .. } = *stalled;
        let left = self.consume(&input[taken..], core, cx);
        if let Some(next) = &mut self.session.stalled {
            next.taken = input.len() - left;
            next.input = input;
        }
        self.arm_receive(core, cx);
        true
    }

    /// Drops waiting input. Returns true if there was any.
    pub(super) fn drop_input(&mut self, core: &mut CoreState) -> bool {
        let stalled = self.session.stalled.take();
        if let Some(stalled) = &stalled {
            core.waiters.lists.remove(stalled.waits);
        }
        stalled.is_some()
    }

    /// Starts the next receive; a large payload is received directly into its command's memory.
    pub(crate) fn arm_receive(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let waits = self.placement.moving.is_some() && self.session.is_between_commands();
        if !self.session.may_receive() || waits || self.state() >= ConnectionState::Closing {
            return;
        }
        let ends = self.state() >= ConnectionState::Terminating;
        let into = self.session.begin_receive(ends);
        let key = OpKey::new(core.op_namespace, RECEIVE, self.key);
        cx.submit(
            key,
            Op::Receive {
                socket: self.socket,
                into,
            },
        );
    }

    /// Sends a termination request, and gives the host time to read it before the close. `[NVMe-TCP
    /// 1.0 §3.6.2.5]`
    #[cold]
    pub(crate) fn terminate(
        &mut self,
        violation: &Violation,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        if self.state() >= ConnectionState::Terminating {
            return;
        }
        if let Some(suppressed) = core.log_budget.allow(self.peer.ip(), cx.now) {
            let (peer, reason) = (self.peer, &*violation.reason);
            tracing::warn!(%peer, reason, suppressed, "terminating a connection");
        }
        core.stats.terminations_sent += 1;
        core.stores.order();
        core.touch();
        self.leave_fresh(core);
        self.enter(ConnectionState::Terminating, core);
        if self.drop_input(core) {
            self.arm_receive(core, cx);
        }
        if self.session.output.make_room(0, &mut core.sends(), cx) {
            self.session.output.push_bytes(violation.request());
            self.appended(0, Urgency::Urgent, core, cx);
            self.deadlines.close = cx.now + core.limits.linger;
            self.arm(core, self.deadlines.close);
        } else {
            // The host does not read earlier output, so it would not read the request either.
            self.close(core, cx);
        }
    }

    /// Takes a command off the submission queue. Returns the list in which it waits if it was not
    /// accepted.
    #[inline]
    fn take_command(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Option<WaitsFor> {
        self.session.commands.consumed();
        if self.state() == ConnectionState::Draining {
            return None;
        }
        if self.session.first_half.is_some() {
            self.interrupt_pair(command, core, cx);
        }
        let cid = command.cid();
        let (events, event_waits) = match &self.owner {
            Owner::Admin(controller) => (controller.events.waiting(), controller.events.has(cid)),
            _ => (0, false),
        };
        let session = &self.session;
        let used = (session.commands.used() + session.output.unsent_answers) as usize;
        if used + events >= session.commands.entries() as usize {
            let reason = "more commands are outstanding than the queue has entries";
            self.violate(command, reason, core, cx);
            return None;
        }
        if event_waits || session.commands.find(cid).is_some() {
            let status = Status::COMMAND_ID_CONFLICT.with_dnr();
            self.end_first(Status::ABORTED_FAILED_FUSED, core, cx);
            self.refuse(command, status, core, cx);
            return None;
        }
        if self.is_fresh() && !self.try_connect() {
            let reason = "too many commands came before Connect and authentication succeeded";
            self.violate(command, reason, core, cx);
            return None;
        }
        if matches!(self.owner, Owner::Io(_)) {
            core.stats.io_commands += 1;
        } else {
            core.stats.admin_commands += 1;
        }
        let list = self.dispatch(command, payload, core, cx)?;
        if mutation::active(Mutation::StallRefused) {
            self.refuse(command, Status::COMMAND_INTERRUPTED, core, cx);
            return None;
        }
        let waits = core.waiters.lists.push(list, self.ticket(INPUT));
        self.session.stall(command, payload, waits, cx.now);
        if list == WaitsFor::SHARE {
            core.stats.share_waits += 1;
        } else {
            core.stats.buffer_waits += 1;
        }
        Some(list)
    }

    /// Begins a command, or refuses it. Returns the list in which the command waits if it was not
    /// accepted; in this case nothing has changed, so that the call can be repeated.
    #[inline]
    fn dispatch(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Option<WaitsFor> {
        let is_io = matches!(self.owner, Owner::Io(_)) && !command.is_fabrics();
        let early = self.too_early(command);
        let mut arrival = Arrival {
            connection: self,
            command,
            payload,
            core,
            cx,
        };
        let taken = if is_io {
            arrival.begin_io()
        } else {
            arrival.core.stores.order();
            match early {
                Some(status) => Err(status.into()),
                None => arrival.begin_admin(),
            }
        };
        match taken {
            Ok(()) => None,
            Err(NotTaken::Stalled(list)) => Some(list),
            Err(NotTaken::Refused(status)) => {
                self.refuse(command, status, core, cx);
                None
            }
        }
    }

    /// Returns the status of a command that must not come before Connect, or before the host has
    /// authenticated. `[NVMe Base 2.0 §6.3]`
    fn too_early(&self, command: &Command) -> Option<Status> {
        if self.state() != ConnectionState::AwaitingConnect {
            return None;
        }
        let kind = command.is_fabrics().then(|| command.fabrics_type());
        match kind {
            Some(FabricsType::CONNECT) => None,
            Some(FabricsType::AUTHENTICATION_SEND | FabricsType::AUTHENTICATION_RECEIVE)
                if self.is_pending() =>
            {
                None
            }
            _ if self.is_pending() && mutation::active(Mutation::ChapNotAwaited) => None,
            _ if self.is_pending() => Some(Status::AUTHENTICATION_REQUIRED.with_dnr()),
            _ => Some(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
        }
    }

    /// Handles a command that is not allowed in the current state.
    #[cold]
    fn violate(
        &mut self,
        command: &Command,
        reason: &str,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        let mut header = [0; PREFIX_BYTES_MAX];
        let capsule = CapsuleCmd { command: *command };
        capsule.encode(self.session.output.format(), 0, &mut header);
        let violation = Violation::of_pdu(
            FatalErrorStatus::PDU_SEQUENCE_ERROR,
            0,
            &header[..CapsuleCmd::SIZE],
            reason,
        );
        self.terminate(&violation, core, cx);
    }
}

impl Arrival<'_, '_> {
    /// Returns a buffer for the data of a command that has no slot yet, and its size in bytes,
    /// which is charged to the connection.
    ///
    /// An admin queue that holds no buffer always gets one of 8 KiB, because a Keep Alive would
    /// wait behind its command. An I/O queue with outstanding R2Ts may use a few buffers outside
    /// the pool, because the data of the R2Ts arrives behind the command.
    ///
    /// # Errors
    /// The list in which input has to wait.
    pub(crate) fn buffer(&mut self, length: u32) -> Result<(IoSlice, u32), WaitsFor> {
        let Self {
            connection,
            command,
            core,
            cx,
            ..
        } = self;
        let (length, pool) = (length as usize, cx.driver.buffers());
        if connection.is_fresh() {
            // One buffer at a time, so that other connections get theirs.
            let first = connection.session.commands.used() == 0;
            let buffer = first.then(|| take_buffer(&core.admin_buffers, length));
            let (buffer, _) = buffer.flatten().ok_or(WaitsFor::SHARE)?;
            return Ok((buffer, 0));
        }
        let holding = &connection.holding;
        let mut list = WaitsFor::SHARE;
        if holding.may_take(length, pool, &core.limits).is_ok() {
            match core.waiters.may_take(length, pool) {
                Ok(()) => return take_buffer(pool, length).ok_or(list),
                Err(size) => list = size,
            }
        }
        let kept = match &connection.owner {
            Owner::Admin(_) if length <= ADMIN_IN_CAPSULE_BYTES as usize => {
                holding.is_empty().then_some(&core.admin_buffers)
            }
            // The first half of a fused pair keeps its buffer until the host sends the second one.
            Owner::Io(_) if command.fuse() == Command::FUSE_FIRST => return Err(list),
            Owner::Io(_) if connection.session.transferring > 0 => Some(&core.capsule_buffers),
            _ => return Err(list),
        };
        // Otherwise it retries whenever one of these buffers may have been returned.
        let buffer = kept.and_then(|kept| take_buffer(kept, length));
        buffer.ok_or(WaitsFor::SHARE)
    }
}

impl Running<'_, '_> {
    /// Gives a command its buffer and copies the data that arrived `inside` its capsule, after the
    /// bytes to skip there. The command continues, or waits for the rest of the capsule.
    pub(crate) fn receive_capsule(
        &mut self,
        (mut buffer, held): (IoSlice, u32),
        (skip, data): (u32, &[u8]),
        payload: Payload<'_>,
    ) {
        self.connection.hold(self.slot, held);
        let entry = self.connection.session.commands.slot(self.slot);
        let length = entry.transfer.length;
        if let Payload::Whole(_, digest_ok) = payload {
            buffer.copy_in(0, data);
            entry.transfer.received = length;
            entry.transfer.damaged = !digest_ok;
            self.core.stats.data_digest_errors += u64::from(!digest_ok);
        }
        entry.transfer.data = Some(buffer);
        entry.enter(CommandState::Arriving, &mut self.core.states);
        if matches!(payload, Payload::Arriving(_)) {
            self.connection.session.incoming = Incoming::capsule(self.slot, skip, length);
        } else {
            self.arrived();
        }
    }
}
