//! Admin and Fabrics commands that have their data: the controller carries them out, and its reply is
//! done here.

use crate::command::step::Step;
use crate::command::table::CommandKind;
use crate::controller::connect::{self, Joined, Origin, Refusal};
use crate::controller::registry::{ConnectionPlace, ControllerKind};
use crate::controller::reply::Reply;
use crate::controller::state::Controller;
use crate::controller::{admin, data, properties};
use crate::request::CommandState;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::{Action, CoreState};
use crate::service::{answers, events};
use crate::shares::Purpose;
use reactor::Context;
use std::sync::Arc;
use switch::knobs::Lanes;
use wire::fabrics::{Connect, ConnectData, ConnectResponse, FabricsCommand, InvalidParameter};
use wire::limits::NSID_BROADCAST;
use wire::nvme::{Command, DataDirection, Status};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// Carries out an admin or Fabrics command that has its data.
pub(crate) fn execute(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Step {
    let Some(command) = connection.session.commands.slot(slot).command.take() else {
        return Step::Wait;
    };
    if let Owner::Admin(controller) = &mut connection.owner {
        controller.keep_alive.note_sign(cx.now);
    }
    let result = if command.is_fabrics() {
        fabrics(connection, slot, &command, core, cx)
    } else {
        match &mut connection.owner {
            Owner::Admin(controller) => {
                let entry = connection.session.commands.slot(slot);
                let data = entry.transfer.data.as_mut();
                let data = data.and_then(|data| data.bytes_mut()).unwrap_or_default();
                let result = admin::execute(controller, &command, data, &core.view(cx.now));
                let deadline = controller.keep_alive.deadline();
                connection.arm(core, deadline);
                result
            }
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    };
    match result {
        Ok(reply) => carry_out(connection, slot, &command, reply, core, cx),
        Err(status) => {
            answers::log_error(
                connection,
                command.cid(),
                command.nsid(),
                command.opcode(),
                status,
            );
            connection.session.commands.slot(slot).transfer.data = None;
            Step::Answer(status)
        }
    }
}

/// Does what the outcome of a command asks for beyond its answer.
fn carry_out(
    connection: &mut Connection,
    slot: u16,
    command: &Command,
    reply: Reply,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Step {
    let asker = connection.ticket(slot);
    let mut result = 0;
    let mut sends = false;
    match reply {
        Reply::Data(value) => {
            (result, sends) = (value, data::direction(command) == DataDirection::ToHost)
        }
        Reply::Bare(value) => result = value,
        Reply::AwaitEvent => {
            // It waits in the controller, without a slot and without being part of a drain.
            connection.free(slot, core);
            events::deliver(connection, core, cx);
            return Step::Wait;
        }
        Reply::EventAborted(cid) => {
            answers::respond(connection, cid, Status::ABORTED_BY_REQUEST, 0, core, cx);
        }
        Reply::Abort { queue, cid } => {
            // At the end of the turn, on the controller's own queue as well: the command's own
            // connection is at hand until then.
            core.actions.push(Action::Abort { queue, cid, asker });
            return Step::Wait;
        }
        Reply::EndController(controller) => {
            core.actions.push(Action::EndOther { controller, asker });
            return Step::Wait;
        }
        Reply::EndQueues(controller) => core.actions.push(Action::EndQueues(controller)),
        Reply::Flush(controller) => {
            core.actions.push(Action::EndQueues(controller));
            let entry = connection.session.commands.slot(slot);
            entry.kind = CommandKind::Shutdown;
            entry.nsid = NSID_BROADCAST;
            entry.enter(CommandState::Dispatched, &mut core.states);
            return Step::Admit;
        }
        Reply::Disconnect => {
            connection.disconnect(slot, core, cx);
            return Step::Wait;
        }
    }
    let entry = connection.session.commands.slot(slot);
    entry.result = result;
    if !sends {
        entry.transfer.data = None;
    }
    Step::Answer(Status::SUCCESS)
}

/// Carries out one Fabrics command. `[NVMe Base 2.0 §6]`
fn fabrics(
    connection: &mut Connection,
    slot: u16,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Reply, Status> {
    match FabricsCommand::parse(command)? {
        FabricsCommand::Connect(connect) => connect_queue(connection, slot, &connect, core, cx),
        FabricsCommand::PropertyGet(get) => {
            let Owner::Admin(controller) = &connection.owner else {
                return Err(Status::INVALID_FIELD.with_dnr());
            };
            properties::get(controller, &get, &core.view(cx.now)).map(Reply::Bare)
        }
        FabricsCommand::PropertySet(set) => {
            let Owner::Admin(controller) = &mut connection.owner else {
                return Err(Status::INVALID_FIELD.with_dnr());
            };
            let before = controller.registers.state();
            let reply = properties::set(controller, &set, &core.view(cx.now));
            core.count_controller(before, controller.registers.state());
            reply
        }
        FabricsCommand::Disconnect(disconnect) => {
            if disconnect.record_format != 0 {
                return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr());
            }
            if !matches!(connection.owner, Owner::Io(_)) {
                return Err(Status::INVALID_QUEUE_TYPE.with_dnr());
            }
            Ok(Reply::Disconnect)
        }
    }
}

/// Connect: the connection becomes a queue of a controller.
fn connect_queue(
    connection: &mut Connection,
    slot: u16,
    connect: &Connect,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Reply, Status> {
    let entry = connection.session.commands.slot(slot);
    let data = entry.transfer.data.as_ref();
    let data = data.and_then(|data| data.bytes()).unwrap_or_default();
    let data = ConnectData::parse_prefix(data).ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
    if connection.state() != ConnectionState::AwaitingConnect {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    }
    let serves = |index: u32| {
        let known = core.namespaces.subsystems.get(index as usize);
        let known = known.and_then(Option::as_ref);
        known.is_some_and(|known| known.removing.is_none())
    };
    let mut origin = Origin {
        permit: &mut connection.permit,
        peer: connection.peer,
        local: connection.local,
        place: ConnectionPlace {
            core: core.index,
            connection: connection.key,
        },
        format: *connection.session.output.format(),
        serves: &serves,
    };
    let view = core.view(cx.now);
    let outcome = if connect.queue_id == 0 {
        let made = connect::admin(connect, &data, &mut origin, &view);
        made.map(|(controller, subsystem)| {
            let id = controller.shared.id;
            become_admin(connection, controller, subsystem, core);
            connected(connection, connect, ADMIN_IN_CAPSULE_BYTES, core);
            id
        })
    } else {
        let classes = core.switch.knobs().lanes == Lanes::PerClass;
        let joined = connect::io(connect, &data, classes, &mut origin, &view);
        joined.map(|joined| {
            let id = joined.controller.id;
            become_io(connection, joined, core, cx);
            let in_capsule_bytes = core.limits.in_capsule_bytes;
            connected(connection, connect, in_capsule_bytes, core);
            core.connections.undealt.push(connection.key);
            id
        })
    };
    match outcome {
        Ok(cntlid) => {
            let response = ConnectResponse {
                cntlid,
                authentication: 0,
            };
            Ok(Reply::Bare(u64::from(response.to_dword())))
        }
        Err(refusal) => Err(refused(connection, slot, &data, refusal, core, cx)),
    }
}

/// Counts and logs a refused Connect. Returns its status.
fn refused(
    connection: &mut Connection,
    slot: u16,
    data: &ConnectData,
    refusal: Refusal,
    core: &mut CoreState,
    cx: &Context<'_>,
) -> Status {
    if let Some(limit) = refusal.limit {
        limit.count(&mut core.stats);
    }
    if let Some(suppressed) = core.log_budget.allow(connection.peer.ip(), cx.now) {
        let (peer, status) = (connection.peer, refusal.status.of_connect());
        let parameter = refusal.parameter.map(tracing::field::display);
        let host = data.hostnqn().ok();
        let host = host.as_ref().map(|name| name.as_str());
        if refusal.from_elsewhere {
            tracing::warn!(
                %peer,
                host,
                suppressed,
                "refused a Connect: the address is outside of the networks of the host's tenant"
            );
        } else {
            tracing::warn!(%peer, host, %status, parameter, suppressed, "refused a Connect");
        }
    }
    let dword = refusal.parameter.map_or(0, InvalidParameter::to_dword);
    connection.session.commands.slot(slot).result = u64::from(dword);
    refusal.status
}

fn become_admin(
    connection: &mut Connection,
    controller: Controller,
    subsystem: u32,
    core: &mut CoreState,
) {
    let kind = controller.shared.kind;
    connection.arm(core, controller.keep_alive.deadline());
    connection.owner = Owner::Admin(Box::new(controller));
    connection.access.subsystem = subsystem;
    let purpose = match kind {
        ControllerKind::Io => Purpose::Control,
        ControllerKind::Discovery => Purpose::Discovery,
    };
    connection.set_purpose(purpose, core);
    connection.assign_token_queues(core);
}

fn become_io(
    connection: &mut Connection,
    joined: Joined,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    connection.set_class(joined.class, core, cx);
    connection.access.rights = joined.rights;
    connection.owner = Owner::Io(Arc::clone(&joined.controller));
    connection.access.subsystem = joined.subsystem;
    connection.set_purpose(Purpose::Data, core);
    connection.assign_token_queues(core);
}

/// The queue is connected.
fn connected(
    connection: &mut Connection,
    connect: &Connect,
    capsule_data_bytes: u32,
    core: &mut CoreState,
) {
    let entries = u32::from(connect.sq_size) + 1;
    let flow_control = !connect.attributes.disables_sq_flow_control();
    let commands = &mut connection.session.commands;
    commands.connect(connect.queue_id, entries, flow_control);
    connection.go_live(capsule_data_bytes, core);
}
