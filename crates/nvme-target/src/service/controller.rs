//! Admin and Fabrics commands, from their arrival to the controller's reply, and the actions that a
//! reply requests in addition to its answer: the end of controllers and queues, aborts, notices to
//! hosts.

use crate::authentication::exchange::First;
use crate::command::blocks;
use crate::command::table::CommandKind;
use crate::controller::async_events::Notice;
use crate::controller::connect::{self, Joined, Origin, Refusal};
use crate::controller::registry::{ConnectionPlace, ControllerKind, SharedController};
use crate::controller::reply::{self, Reply, View};
use crate::controller::state::Controller;
use crate::controller::{admin, properties};
use crate::message::CoreMessage;
use crate::request::{CommandState, Step, Ticket, WaitingAbort};
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::{Action, CoreState};
use crate::service::input::{Arrival, NotTaken};
use crate::service::poll_group::PollGroup;
use crate::service::requests::{Aborted, Running};
use crate::session::event::Payload;
use crate::shares::Purpose;
use base::SlabKey;
use reactor::Context;
use std::sync::Arc;
use switch::knobs::Lanes;
use wire::fabrics::{Connect, ConnectData, ConnectResponse, FabricsCommand, InvalidParameter};
use wire::limits::NSID_BROADCAST;
use wire::nvme::admin::ABORT_NOT_ABORTED;
use wire::nvme::{Command, DataDirection, Status};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

impl Arrival<'_, '_> {
    /// Begins an admin or Fabrics command: gets a slot, a buffer and its data.
    pub(crate) fn begin_admin(&mut self) -> Result<(), NotTaken> {
        let (command, payload) = (self.command, self.payload);
        let direction = reply::direction(command);
        let pointer = reply::pointer(command, direction)?;
        let length = pointer.length();
        let takes_data = direction == DataDirection::ToController;
        let limit = if takes_data || self.connection.is_fresh() {
            ADMIN_IN_CAPSULE_BYTES
        } else {
            self.core.limits.transfer_bytes
        };
        if length > limit {
            return Err(Status::INVALID_FIELD.with_dnr().into());
        }
        let inside = if takes_data && length > 0 {
            blocks::arrival(pointer, payload, length)?
        } else if matches!(payload, Payload::None) {
            Some((0, &[][..]))
        } else {
            return Err(Status::INVALID_FIELD.with_dnr().into());
        };
        let buffer = match length {
            0 => None,
            _ => Some(self.buffer(length)?),
        };
        let (commands, states) = (&mut self.connection.session.commands, &mut self.core.states);
        let slot = commands.take(command.cid(), states);
        let slot = slot.ok_or(Status::INTERNAL_ERROR)?;
        let mut running = self.connection.run(slot, self.core, self.cx);
        let entry = running.entry();
        entry.kind = CommandKind::Admin;
        entry.opcode = command.opcode();
        entry.command = Some(Box::new(*command));
        entry.transfer.length = length;
        match (buffer, inside) {
            (Some(buffer), Some(inside)) if takes_data => {
                running.receive_capsule(buffer, inside, payload);
                return Ok(());
            }
            (Some((mut data, held)), _) => {
                if !takes_data && let Some(bytes) = data.bytes_mut() {
                    bytes.fill(0);
                }
                entry.transfer.data = Some(data);
                running.connection.hold(slot, held);
            }
            (None, _) => {}
        }
        if takes_data && length > 0 {
            running.request_data();
        } else {
            running.enter(CommandState::Arriving);
            running.arrived();
        }
        Ok(())
    }
}

impl Connection {
    /// Makes the connection the admin queue of a controller.
    pub(super) fn own(&mut self, controller: Controller, subsystem: u32, core: &mut CoreState) {
        self.arm(core, controller.keep_alive.deadline());
        self.owner = Owner::Admin(Box::new(controller));
        self.access.subsystem = subsystem;
    }

    /// Makes the admin queue live.
    pub(super) fn become_admin(&mut self, core: &mut CoreState) {
        let Owner::Admin(controller) = &self.owner else {
            return;
        };
        let purpose = match controller.shared.kind {
            ControllerKind::Io => Purpose::Control,
            ControllerKind::Discovery => Purpose::Discovery,
        };
        self.set_purpose(purpose, core);
        self.assign_token_queues(core);
        self.go_live(ADMIN_IN_CAPSULE_BYTES, core);
    }

    /// Makes the connection a live I/O queue.
    pub(super) fn become_io(&mut self, joined: Joined, core: &mut CoreState, cx: &mut Context<'_>) {
        self.set_class(joined.class, core, cx);
        self.access.rights = joined.rights;
        self.owner = Owner::Io(Arc::clone(&joined.controller));
        self.access.subsystem = joined.subsystem;
        self.set_purpose(Purpose::Data, core);
        self.assign_token_queues(core);
        self.go_live(core.limits.in_capsule_bytes, core);
        core.connections.undealt.push(self.key);
    }

    /// Sets the terms of the queue after a successful Connect.
    fn connected(&mut self, connect: &Connect) {
        let entries = u32::from(connect.sq_size) + 1;
        let flow_control = !connect.attributes.disables_sq_flow_control();
        let commands = &mut self.session.commands;
        commands.connect(connect.queue_id, entries, flow_control);
    }
}

impl Running<'_, '_> {
    /// Executes an admin or Fabrics command that has its data.
    pub(crate) fn execute_admin(&mut self) -> Step {
        let Some(command) = self.entry().command.take() else {
            return Step::Wait;
        };
        if let Owner::Admin(controller) = &mut self.connection.owner {
            controller.keep_alive.note_sign(self.cx.now);
        }
        let result = if command.is_fabrics() {
            self.fabrics(&command)
        } else {
            match &mut self.connection.owner {
                Owner::Admin(controller) => {
                    let entry = self.connection.session.commands.slot(self.slot);
                    let data = entry.transfer.data.as_mut();
                    let data = data.and_then(|data| data.bytes_mut()).unwrap_or_default();
                    let view = self.core.view(self.cx.now);
                    let result = admin::execute(controller, &command, data, &view);
                    let deadline = controller.keep_alive.deadline();
                    self.connection.arm(self.core, deadline);
                    result
                }
                Owner::Io(controller) => {
                    let controller = Arc::clone(controller);
                    self.reserve(&controller, &command)
                }
                Owner::None => Err(Status::INVALID_OPCODE.with_dnr()),
            }
        };
        match result {
            Ok(reply) => self.carry_out(&command, reply),
            Err(status) => {
                self.connection
                    .log_error(command.cid(), command.nsid(), command.opcode(), status);
                self.entry().transfer.data = None;
                Step::Answer(status)
            }
        }
    }

    /// Executes the actions that a controller's reply requests in addition to the answer.
    fn carry_out(&mut self, command: &Command, reply: Reply) -> Step {
        let asker = self.connection.ticket(self.slot);
        let mut result = 0;
        let mut sends = false;
        match reply {
            Reply::Data(value) => {
                (result, sends) = (value, reply::direction(command) == DataDirection::ToHost)
            }
            Reply::Bare(value) => result = value,
            Reply::AwaitEvent => {
                // It waits in the controller, without a slot and without delaying a drain.
                self.connection.free(self.slot, self.core);
                self.connection.deliver_events(self.core, self.cx);
                return Step::Wait;
            }
            Reply::EventAborted(cid) => {
                let aborted = Status::ABORTED_BY_REQUEST;
                self.connection.respond(cid, aborted, 0, self.core, self.cx);
            }
            Reply::Abort { queue, cid } => {
                // At the end of the turn, even for the controller's own queue: the command's own
                // connection is in use until then.
                self.core.actions.push(Action::Abort { queue, cid, asker });
                return Step::Wait;
            }
            Reply::EndController(controller) => {
                self.core
                    .actions
                    .push(Action::EndOther { controller, asker });
                return Step::Wait;
            }
            Reply::EndQueues(controller) => self.core.actions.push(Action::EndQueues(controller)),
            Reply::Flush(controller) => {
                self.core.actions.push(Action::EndQueues(controller));
                let entry = self.entry();
                entry.kind = CommandKind::Shutdown;
                entry.nsid = NSID_BROADCAST;
                self.enter(CommandState::Dispatched);
                return Step::Admit;
            }
            Reply::Reserve { nsid, request } => return self.leave_to_reserver(nsid, request),
            Reply::AwaitAuthentication => return Step::Wait,
            Reply::Disconnect => {
                self.connection.disconnect(self.slot, self.core, self.cx);
                return Step::Wait;
            }
        }
        let entry = self.entry();
        entry.result = result;
        if !sends {
            entry.transfer.data = None;
        }
        Step::Answer(Status::SUCCESS)
    }

    /// Executes one Fabrics command. `[NVMe Base 2.0 §6]`
    fn fabrics(&mut self, command: &Command) -> Result<Reply, Status> {
        match FabricsCommand::parse(command)? {
            FabricsCommand::Connect(connect) => self.connect_queue(&connect),
            FabricsCommand::AuthenticationSend(send) => self.authentication_send(&send),
            FabricsCommand::AuthenticationReceive(receive) => self.authentication_receive(&receive),
            FabricsCommand::PropertyGet(get) => {
                let Owner::Admin(controller) = &self.connection.owner else {
                    return Err(Status::INVALID_FIELD.with_dnr());
                };
                properties::get(controller, &get, &self.core.view(self.cx.now)).map(Reply::Bare)
            }
            FabricsCommand::PropertySet(set) => {
                let Owner::Admin(controller) = &mut self.connection.owner else {
                    return Err(Status::INVALID_FIELD.with_dnr());
                };
                let before = controller.registers.state();
                let reply = properties::set(controller, &set, &self.core.view(self.cx.now));
                self.core
                    .count_controller(before, controller.registers.state());
                reply
            }
            FabricsCommand::Disconnect(disconnect) => {
                if disconnect.record_format != 0 {
                    return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr());
                }
                if !matches!(self.connection.owner, Owner::Io(_)) {
                    return Err(Status::INVALID_QUEUE_TYPE.with_dnr());
                }
                Ok(Reply::Disconnect)
            }
        }
    }

    /// Executes Connect: makes the connection a queue of a controller, at once or after the host has
    /// authenticated.
    fn connect_queue(&mut self, connect: &Connect) -> Result<Reply, Status> {
        let entry = self.entry();
        let data = entry.transfer.data.as_ref();
        let data = data.and_then(|data| data.bytes()).unwrap_or_default();
        let data =
            ConnectData::parse_prefix(data).ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
        let connection = &self.connection;
        if connection.state() != ConnectionState::AwaitingConnect || connection.is_pending() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        let outcome = if connect.queue_id == 0 {
            self.connect_admin(connect, &data)
        } else {
            self.connect_io(connect, &data)
        };
        match outcome {
            Ok((cntlid, is_pending)) => {
                let required = match is_pending {
                    true => ConnectResponse::AUTHENTICATION_REQUIRED,
                    false => 0,
                };
                let response = ConnectResponse {
                    cntlid,
                    authentication: required,
                };
                Ok(Reply::Bare(u64::from(response.to_dword())))
            }
            Err(refusal) => {
                let host = data.hostnqn().ok();
                let host = host.as_ref().map(|name| name.as_str());
                Err(self.refused(host, refusal))
            }
        }
    }

    /// Connects an admin queue. Returns the controller's identifier, and whether the host has to
    /// authenticate.
    fn connect_admin(
        &mut self,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<(u16, bool), Refusal> {
        let (controller, subsystem) = self.with_origin(false, |origin, view| {
            connect::admin(connect, data, origin, view)
        })?;
        let (connection, core) = (&mut *self.connection, &mut *self.core);
        let (id, is_pending) = (
            controller.shared.id,
            controller.shared.standing().is_pending,
        );
        connection.own(controller, subsystem, core);
        connection.connected(connect);
        if is_pending {
            connection.await_authentication(First::Admin, data, core, self.cx.now);
        } else {
            connection.become_admin(core);
        }
        Ok((id, is_pending))
    }

    /// Connects an I/O queue. Returns the controller's identifier, and whether the host has to
    /// authenticate; in this case its Connect takes effect afterwards.
    fn connect_io(
        &mut self,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<(u16, bool), Refusal> {
        let joined = self.join(connect, data, false)?;
        let (connection, core) = (&mut *self.connection, &mut *self.core);
        connection.connected(connect);
        let is_pending = joined.is_none();
        match joined {
            Some(joined) => connection.become_io(joined, core, self.cx),
            None => {
                let first = First::Io(Box::new((*connect, *data)));
                connection.await_authentication(first, data, core, self.cx.now);
            }
        }
        Ok((data.cntlid, is_pending))
    }

    /// Adds an I/O queue to its controller; `None` if its host has to authenticate first.
    pub(super) fn join(
        &mut self,
        connect: &Connect,
        data: &ConnectData,
        authenticated: bool,
    ) -> Result<Option<Joined>, Refusal> {
        let classes = self.core.switch.knobs().lanes == Lanes::PerClass;
        self.with_origin(authenticated, |origin, view| {
            connect::io(connect, data, classes, origin, view)
        })
    }

    /// Calls `f` with the connection of a Connect, and the parts of the core that it reads.
    fn with_origin<T>(
        &mut self,
        authenticated: bool,
        f: impl FnOnce(&mut Origin<'_>, &View<'_>) -> T,
    ) -> T {
        let Running {
            connection,
            core,
            cx,
            ..
        } = self;
        let serves = |index: u32| {
            let known = core.namespaces.subsystems.get(index as usize);
            let known = known.and_then(Option::as_ref);
            known.is_some_and(|known| known.removing.is_none())
        };
        let mut origin = Origin {
            permit: &mut connection.permit,
            peer: connection.peer,
            local: connection.local,
            proven: connection.proven.as_deref(),
            authenticated,
            place: ConnectionPlace {
                core: core.index,
                connection: connection.key,
            },
            format: *connection.session.output.format(),
            serves: &serves,
        };
        f(&mut origin, &core.view(cx.now))
    }

    /// Counts and logs a refused Connect. Returns its status.
    pub(super) fn refused(&mut self, host: Option<&str>, refusal: Refusal) -> Status {
        let Running {
            connection,
            slot,
            core,
            cx,
        } = self;
        if let Some(limit) = refusal.limit {
            limit.count(&mut core.stats);
        }
        if let Some(suppressed) = core.log_budget.allow(connection.peer.ip(), cx.now) {
            let (peer, status) = (connection.peer, refusal.status.of_connect());
            let parameter = refusal.parameter.map(tracing::field::display);
            if refusal.from_elsewhere {
                tracing::warn!(
                    %peer,
                    host,
                    suppressed,
                    "refused Connect: the address is outside the networks of the host's tenant"
                );
            } else if !refusal.missing.is_none() {
                let (why, required) = (refusal.why_unproven(), refusal.missing);
                core.shared
                    .note_refused(host, peer.ip(), format!("Connect: {why}"));
                tracing::warn!(%peer, host, suppressed, %required, "refused Connect: {why}");
            } else {
                tracing::warn!(%peer, host, %status, parameter, suppressed, "refused Connect");
            }
        }
        let dword = refusal.parameter.map_or(0, InvalidParameter::to_dword);
        connection.session.commands.slot(*slot).result = u64::from(dword);
        refusal.status
    }
}

impl PollGroup {
    pub(super) fn run_actions(&mut self, cx: &mut Context<'_>) {
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
                Action::Fence(fence) => self.enter_fence(fence),
                Action::Unfence(pair) => self.leave_fence(pair),
            }
        }
    }

    /// Ends a controller's I/O queues, and makes it accept no more.
    pub(super) fn end_controller(&mut self, controller: &SharedController, cx: &mut Context<'_>) {
        let mut queues = controller.queues();
        queues.dead = true;
        queues.ready = false;
        let places = std::mem::take(&mut queues.places);
        drop(queues);
        self.end_queues(controller.id, places.into_values(), cx);
    }

    pub(super) fn end_queues(
        &mut self,
        cntlid: u16,
        places: impl Iterator<Item = ConnectionPlace>,
        cx: &mut Context<'_>,
    ) {
        for ConnectionPlace { core, connection } in places {
            if core == self.core.index {
                self.end_queue(connection, cntlid, cx);
            } else {
                let note = CoreMessage::EndQueue { connection, cntlid };
                self.core.shared.deliver(core, note);
            }
        }
    }

    pub(super) fn end_queue(&mut self, key: SlabKey, cntlid: u16, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let owned = |controller: &Arc<SharedController>| controller.id == cntlid;
        if connection.controller().is_some_and(owned) {
            connection.close(&mut self.core, cx);
        }
    }

    /// Completes the reset or shutdown of a controller that waited for its I/O queues.
    pub(super) fn queues_ended(&mut self, admin: SlabKey, cntlid: u16) {
        let connection = self.connections.get_mut(admin);
        if let Some(connection) = connection.filter(|connection| connection.answers())
            && let Owner::Admin(controller) = &mut connection.owner
            && controller.shared.id == cntlid
        {
            let before = controller.registers.state();
            controller.settle();
            self.core
                .count_controller(before, controller.registers.state());
            self.core.touch();
        }
    }

    /// Ends the controllers of hosts that may no longer use their subsystem.
    pub(super) fn end_denied(&mut self, cx: &mut Context<'_>) {
        let rules = self.core.shared.rules();
        for (_, connection) in self.connections.iter_mut() {
            if let Owner::Admin(controller) = &connection.owner
                && (controller.shared.is_denied(&rules)
                    || self.core.shared.is_unproven(&controller.shared))
            {
                connection.close(&mut self.core, cx);
            }
        }
    }

    pub(super) fn pass_abort(
        &mut self,
        queue: ConnectionPlace,
        cid: u16,
        asker: Ticket,
        cx: &mut Context<'_>,
    ) {
        let ConnectionPlace { core, connection } = queue;
        let from = self.core.index;
        if core == from {
            if let Some(aborted) = self.abort(connection, cid, (from, asker), cx) {
                self.aborted(asker, aborted, cx);
            }
            return;
        }
        let message = CoreMessage::Abort {
            connection,
            cid,
            from,
            asker,
        };
        if self.core.shared.send(core, message).is_err() {
            self.aborted(asker, false, cx);
        }
    }

    /// Aborts a command for an Abort command of the core `from`. Returns true if it is aborted;
    /// `None` if that is known only when the command ends, which then answers the Abort.
    pub(super) fn abort(
        &mut self,
        key: SlabKey,
        cid: u16,
        (from, asker): (usize, Ticket),
        cx: &mut Context<'_>,
    ) -> Option<bool> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Some(false);
        };
        match connection.abort(cid, &mut self.core, cx) {
            Aborted::Yes => Some(true),
            Aborted::No => Some(false),
            Aborted::AtEnd(aborted) => {
                self.core.aborts.push(WaitingAbort {
                    aborted,
                    from,
                    asker,
                });
                None
            }
        }
    }

    /// Answers an Abort command.
    pub(super) fn aborted(&mut self, asker: Ticket, aborted: bool, cx: &mut Context<'_>) {
        if let Some(connection) = self.connections.get_mut(asker.connection)
            && let Owner::Admin(controller) = &mut connection.owner
        {
            controller.aborts -= 1;
        }
        let result = if aborted { 0 } else { ABORT_NOT_ABORTED };
        self.answer_later(asker, u64::from(result), cx);
    }

    /// Answers an admin command that had to wait, with success.
    pub(super) fn answer_later(&mut self, asker: Ticket, result: u64, cx: &mut Context<'_>) {
        self.answer_with(asker, (Status::SUCCESS, result), cx);
    }

    /// Answers a command that had to wait with its status and dwords 0 and 1.
    pub(super) fn answer_with(
        &mut self,
        asker: Ticket,
        (status, result): (Status, u64),
        cx: &mut Context<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(asker.connection) else {
            return;
        };
        let Some(entry) = connection.session.commands.get(asker.slot) else {
            return;
        };
        if entry.state() != CommandState::Executing {
            return;
        }
        entry.result = result;
        connection
            .run(asker.slot, &mut self.core, cx)
            .finish(status);
        self.reclaim(asker.connection, cx);
    }

    pub(super) fn notify(&mut self, subsystem: Option<u32>, notice: Notice, cx: &mut Context<'_>) {
        for (_, connection) in self.connections.iter_mut() {
            let Owner::Admin(controller) = &mut connection.owner else {
                continue;
            };
            let meant = match subsystem {
                Some(index) => !controller.is_discovery() && connection.access.subsystem == index,
                None => controller.is_discovery(),
            };
            let hidden = match notice {
                Notice::Namespace(nsid) => !controller.sees(nsid),
                Notice::Reservation { nsid, host, .. } => {
                    host != controller.shared.host_id || !controller.sees(nsid)
                }
                Notice::Ana | Notice::Discovery => false,
            };
            if meant && controller.is_outdated() {
                connection.close(&mut self.core, cx);
            } else if meant && !hidden {
                controller.events.raise(notice);
                connection.deliver_events(&mut self.core, cx);
            }
        }
    }
}
