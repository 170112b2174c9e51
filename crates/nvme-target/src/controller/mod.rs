//! A controller: what a host's association with a subsystem (or the discovery service) is.
//!
//! [`Controller`] belongs to the admin queue's connection and lives on its core. What the I/O
//! queues on other cores need is in [`SharedController`].

pub(crate) mod admin;
pub(crate) mod async_events;
pub(crate) mod discovery;
pub(crate) mod fabrics;
pub(crate) mod features;
pub(crate) mod identify;
pub(crate) mod keep_alive;
pub(crate) mod log_pages;
pub(crate) mod registry;

use crate::command;
use crate::controller::registry::{ControllerKind, SharedController};
use crate::namespace::Namespace;
use crate::qos::access::Rights;
use crate::request::{Kind, Phase};
use crate::service::core::CoreState;
use crate::service::events;
use crate::session::connection::{Connection, Owner};
use crate::session::input::{Flow, Incoming, Payload, Sink, take_buffer};
use crate::session::transfer;
use async_events::{AsyncEvents, Notice};
use features::Features;
use keep_alive::KeepAlive;
use reactor::{Context, IoSlice};
use std::net::IpAddr;
use std::sync::Arc;
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::nvme::{Command, DataPointer, Status};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// The admin queue's part of a controller.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) shared: Arc<SharedController>,
    /// Our address that the host has reached, where it is known.
    pub(crate) reached: Option<IpAddr>,
    /// CC.
    pub(crate) configuration: Configuration,
    /// CSTS.
    pub(crate) status: ControllerStatus,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) features: Features,
    pub(crate) events: AsyncEvents,
    /// What its host may do in the subsystem; `None` for everything.
    pub(crate) rights: Option<Arc<Rights>>,
}

impl Controller {
    pub(crate) fn is_discovery(&self) -> bool {
        self.shared.kind == ControllerKind::Discovery
    }

    /// Returns true unless every command to the namespace would be refused for the host's tenant.
    pub(crate) fn sees(&self, nsid: u32) -> bool {
        let rights = self.rights.as_ref();
        rights.is_none_or(|rights| rights.check_any(nsid).is_ok())
    }

    /// The namespaces that the host may touch, by identifier: a tenant does not learn of others.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = Arc<Namespace>> {
        let all = self.shared.subsystem.iter().flat_map(|s| s.namespaces());
        all.filter(|namespace| self.sees(namespace.nsid()))
    }

    /// A namespace that the host may touch.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<Arc<Namespace>> {
        let subsystem = self.shared.subsystem.as_ref().filter(|_| self.sees(nsid));
        subsystem.and_then(|subsystem| subsystem.namespace(nsid))
    }

    /// Takes other rights, and raises a notice for each namespace that appears or disappears.
    pub(crate) fn set_rights(&mut self, rights: Option<Arc<Rights>>) {
        let seen = |controller: &Self| -> Vec<_> {
            let namespaces = controller.namespaces();
            namespaces.map(|namespace| namespace.nsid()).collect()
        };
        let before = seen(self);
        self.rights = rights;
        let after = seen(self);
        for nsid in before.iter().chain(&after) {
            if before.contains(nsid) != after.contains(nsid) {
                self.events.raise(Notice::Namespace(*nsid));
            }
        }
    }

    /// Whether any namespace has a volatile write cache.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        let mut devices = self
            .namespaces()
            .map(|namespace| namespace.options.device.capabilities());
        devices.any(|capabilities| capabilities.volatile_cache)
    }
}

/// What became of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Done, with the completion's dwords 0 and 1. Data, if any, is in the slot's buffer.
    Done(u64),
    /// It has no data to send, although it might have had.
    Bare(u64),
    /// Somebody else answers later.
    Later,
    /// It is answered already, or holds no slot any more.
    Taken,
}

/// Where a command's data goes: bits 1:0 of the opcode, or of the type of a Fabrics command.
/// `[NVMe Base 2.0 §3.3.3.1]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    None,
    ToController,
    ToHost,
}

fn direction(command: &Command) -> Direction {
    let code = if command.is_fabrics() {
        command.fabrics_type().0
    } else {
        command.opcode()
    };
    match code & 0b11 {
        0b01 => Direction::ToController,
        0b10 => Direction::ToHost,
        _ => Direction::None,
    }
}

/// An admin or Fabrics command came in: gets it a slot and a buffer, and its data.
pub(crate) fn begin(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Flow {
    try_begin(connection, command, payload, core, cx).unwrap_or_else(|status| {
        transfer::refuse(connection, command, status, core, cx);
        Flow::Continue
    })
}

/// Where the command's data is. Hosts leave the descriptor all zero where no data moves, which for
/// Get and Set Features the opcode does not tell.
fn data_pointer(command: &Command, direction: Direction) -> Result<DataPointer, Status> {
    if direction == Direction::None || command.sgl().is_zero() {
        return Ok(DataPointer::Transport { length: 0 });
    }
    command.data_pointer()
}

/// A buffer for a command's data, if it has any, and how many bytes of the core's it takes. `None`
/// where it has to wait for one.
fn buffer_for(
    connection: &Connection,
    length: u32,
    core: &CoreState,
    cx: &Context<'_>,
) -> Option<(Option<IoSlice>, u32)> {
    if length == 0 {
        return Some((None, 0));
    }
    let length = length as usize;
    // What waits for data on this very connection must not wait for its input.
    let waits = connection.transferring > 0;
    let pool = cx.driver.buffers();
    let fair = connection
        .holding
        .may_take(length, pool, &core.limits)
        .is_ok();
    let (buffer, held) = take_buffer(cx, length).filter(|_| fair || waits)?;
    Some((Some(buffer), held))
}

fn try_begin(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let direction = direction(command);
    let pointer = data_pointer(command, direction)?;
    let length = pointer.length();
    let limit = match direction {
        Direction::ToController => ADMIN_IN_CAPSULE_BYTES,
        _ => core.limits.transfer_bytes,
    };
    if length > limit {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let inside = match direction {
        Direction::ToController if length > 0 => command::arrival(pointer, payload, length)?,
        _ if matches!(payload, Payload::None) => Some((0, &[][..])),
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    };
    let Some((mut buffer, held)) = buffer_for(connection, length, core, cx) else {
        return Ok(Flow::Stall);
    };
    let slot = connection
        .qpair
        .take(command.cid())
        .ok_or(Status::INTERNAL_ERROR)?;
    connection.keep(slot, held);
    let entry = connection.qpair.slot(slot);
    entry.kind = Kind::Admin;
    entry.opcode = command.opcode();
    entry.command = Some(Box::new(*command));
    entry.length = length;
    let Some((skip, data)) = inside else {
        entry.data = buffer;
        command::ask(connection, slot, core, cx);
        return Ok(Flow::Continue);
    };
    match (direction, payload) {
        (Direction::ToHost, _) => {
            if let Some(bytes) = buffer.as_mut().and_then(|buffer| buffer.bytes_mut()) {
                bytes.fill(0);
            }
        }
        (_, Payload::Whole(_, digest_ok)) => {
            if let Some(buffer) = &mut buffer {
                buffer.copy_in(0, data);
            }
            entry.damaged = !digest_ok;
            entry.received = length;
        }
        (_, Payload::Arriving(_)) => {
            entry.data = buffer;
            entry.phase = Phase::Arriving;
            let sink = Sink::Capsule(slot);
            connection.incoming = Incoming {
                sink,
                position: 0,
                skip,
                base: 0,
                want: length,
            };
            return Ok(Flow::Continue);
        }
        _ => {}
    }
    entry.data = buffer;
    command::arrived(connection, slot, core, cx);
    Ok(Flow::Continue)
}

/// Carries out an admin or Fabrics command that has its data.
pub(crate) fn execute(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    let Some(command) = entry.command.take() else {
        return;
    };
    let direction = direction(&command);
    if let Owner::Admin(controller) = &mut connection.owner {
        controller.keep_alive.note_command(cx.now);
    }
    let result = if command.is_fabrics() {
        fabrics::execute(connection, slot, &command, core, cx)
    } else {
        match std::mem::replace(&mut connection.owner, Owner::Nobody) {
            Owner::Admin(mut controller) => {
                let result = admin::execute(&mut controller, connection, slot, &command, core, cx);
                connection.owner = Owner::Admin(controller);
                result
            }
            other => {
                connection.owner = other;
                Err(Status::INVALID_OPCODE.with_dnr())
            }
        }
    };
    let (status, value, sends) = match result {
        Ok(Reply::Done(value)) => (Status::SUCCESS, value, direction == Direction::ToHost),
        Ok(Reply::Bare(value)) => (Status::SUCCESS, value, false),
        Ok(Reply::Later | Reply::Taken) => return,
        Err(status) => (status, connection.qpair.slot(slot).result, false),
    };
    if !status.is_success() {
        transfer::record_error(
            connection,
            command.cid(),
            command.nsid(),
            command.opcode(),
            status,
        );
    }
    let entry = connection.qpair.slot(slot);
    entry.result = value;
    if !sends {
        entry.data = None;
    }
    command::finish(connection, slot, status, core, cx);
    events::deliver(connection, core, cx);
}
