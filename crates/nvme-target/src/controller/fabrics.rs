//! Fabrics commands: Connect, properties, Disconnect. `[NVMe Base 2.0 §6]`

use crate::command;
use crate::controller::async_events::AsyncEvents;
use crate::controller::features::Features;
use crate::controller::keep_alive::KeepAlive;
use crate::controller::registry::{
    ControllerKind, ControllerLimit, Place, QueueTerms, SharedController,
};
use crate::controller::{Controller, Reply};
use crate::qos::access::Pass;
use crate::request::Kind;
use crate::service::core::{Action, CoreState};
use crate::session::connection::{Connection, Owner, State};
use crate::shares::Purpose;
use crate::subsystem::Subsystem;
use base::{Nanos, Time};
use reactor::Context;
use std::sync::Arc;
use switch::Class;
use switch::knobs::Lanes;
use wire::fabrics::property::{Capabilities, Configuration, ControllerStatus, Version};
use wire::fabrics::{
    Connect, ConnectData, ConnectResponse, FabricsCommand, InvalidParameter, Property, PropertyGet,
    PropertySet,
};
use wire::limits::NSID_BROADCAST;
use wire::nvme::{Command, NqnError, Status};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// CAP.TO in units of 500 ms. A controller is ready at once; hosts take 0 for no time at all.
const READY_TIMEOUT_500_MS: u8 = 15;

/// Least SQSIZE of an admin queue: 32 entries. `[NVMe Base 2.0 §6.3]`
const ADMIN_SQSIZE_MIN: u16 = 31;

/// Carries out one Fabrics command.
pub(crate) fn execute(
    connection: &mut Connection,
    slot: u16,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Reply, Status> {
    match FabricsCommand::parse(command)? {
        FabricsCommand::Connect(connect) => {
            let entry = connection.qpair.slot(slot);
            let data = entry
                .data
                .as_ref()
                .and_then(|data| data.bytes())
                .unwrap_or_default();
            let data = ConnectData::parse_prefix(data)
                .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
            if connection.state != State::Fresh {
                return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
            }
            let outcome = if connect.queue_id == 0 {
                connect_admin(connection, &connect, &data, core, cx.now)
            } else {
                connect_io(connection, &connect, &data, core, cx)
            };
            match outcome {
                Ok(cntlid) => {
                    let response = ConnectResponse {
                        cntlid,
                        authentication: 0,
                    };
                    Ok(Reply::Bare(u64::from(response.to_dword())))
                }
                Err(refusal) => {
                    if let Some(suppressed) = core.log_budget.allow(connection.peer.ip(), cx.now) {
                        let (peer, status) = (connection.peer, refusal.status);
                        let parameter = refusal.parameter.map(tracing::field::display);
                        tracing::info!(%peer, %status, parameter, suppressed, "refused a Connect");
                    }
                    let dword = refusal.parameter.map_or(0, InvalidParameter::to_dword);
                    connection.qpair.slot(slot).result = u64::from(dword);
                    Err(refusal.status)
                }
            }
        }
        FabricsCommand::PropertyGet(get) => {
            let Owner::Admin(controller) = &connection.owner else {
                return Err(Status::INVALID_FIELD.with_dnr());
            };
            property_get(controller, &get, core).map(Reply::Bare)
        }
        FabricsCommand::PropertySet(set) => {
            let Owner::Admin(controller) = &mut connection.owner else {
                return Err(Status::INVALID_FIELD.with_dnr());
            };
            if property_set(controller, &set, core, cx.now)? == Shutdown::Normal {
                let entry = connection.qpair.slot(slot);
                entry.kind = Kind::Shutdown;
                entry.nsid = NSID_BROADCAST;
                command::tokens::flush_all(connection, slot, core, cx);
                return Ok(Reply::Taken);
            }
            Ok(Reply::Bare(0))
        }
        FabricsCommand::Disconnect(disconnect) => {
            if disconnect.record_format != 0 {
                return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr());
            }
            if !matches!(connection.owner, Owner::Io(_)) {
                return Err(Status::INVALID_QUEUE_TYPE.with_dnr());
            }
            // The commands under way are answered, this one last; then the connection closes.
            connection.drain(core, cx);
            Ok(Reply::Bare(0))
        }
    }
}

/// Why a Connect is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    status: Status,
    /// The offending parameter, for dword 0.
    parameter: Option<InvalidParameter>,
}

impl Refusal {
    /// Without DNR: the host may find room later.
    const BUSY: Self = Self {
        status: Status::CONNECT_CONTROLLER_BUSY,
        parameter: None,
    };

    const fn of(status: Status) -> Self {
        Self {
            status: status.with_dnr(),
            parameter: None,
        }
    }

    const fn invalid(parameter: InvalidParameter) -> Self {
        Self {
            status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(),
            parameter: Some(parameter),
        }
    }

    const fn in_command(offset: u16) -> Self {
        Self::invalid(InvalidParameter::in_command(offset))
    }

    const fn in_data(offset: u16) -> Self {
        Self::invalid(InvalidParameter::in_data(offset))
    }
}

/// HOSTNQN; empty for a host that does not name itself, which is served where any host is.
fn host_name(data: &ConnectData) -> Result<String, Refusal> {
    match data.hostnqn() {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(NqnError::Empty) => Ok(String::new()),
        Err(_) => Err(Refusal::in_data(ConnectData::HOSTNQN_OFFSET)),
    }
}

/// Connect of an admin queue: makes a controller.
fn connect_admin(
    connection: &mut Connection,
    connect: &Connect,
    data: &ConnectData,
    core: &mut CoreState,
    now: Time,
) -> Result<u16, Refusal> {
    if connect.record_format != 0 {
        return Err(Refusal::of(Status::CONNECT_INCOMPATIBLE_FORMAT));
    }
    if connect.sq_size < ADMIN_SQSIZE_MIN || connect.sq_size >= core.limits.queue_entries.max(32) {
        return Err(Refusal::in_command(Connect::SQSIZE_OFFSET));
    }
    if data.cntlid != ConnectData::CNTLID_DYNAMIC {
        return Err(Refusal::in_data(ConnectData::CNTLID_OFFSET));
    }
    let host = host_name(data)?;
    if data.host_id == [0; 16] {
        return Err(Refusal::in_data(ConnectData::HOSTID_OFFSET));
    }
    let subsystem = asked_for(connection, data, &host, core)?;
    let kind = if subsystem.is_some() {
        ControllerKind::Io
    } else {
        ControllerKind::Discovery
    };
    let index = subsystem_index(subsystem.as_ref(), core)?;
    let host = (host, data.host_id);
    let (peer, granted) = (connection.peer, core.limits.io_queues);
    let admin = Place {
        core: core.index,
        connection: connection.key,
    };
    let who = (host.0.clone(), host.1);
    let tenant = tenant_of(&host.0, subsystem.as_deref(), core);
    let of = tenant.clone();
    let make =
        |id| SharedController::new(id, kind, subsystem, host, peer, admin, granted).of_tenant(of);
    let limits = &core.limits;
    let mut controllers = core.shared.controllers();
    let full = controllers.full(limits, kind, (&who.0, who.1), peer.ip(), tenant.as_ref());
    let shared = match full {
        None => controllers.insert(limits.controllers, make),
        Some(_) => None,
    };
    drop(controllers);
    let Some(shared) = shared else {
        full.unwrap_or(ControllerLimit::All).count(&mut core.stats);
        return Err(Refusal::BUSY);
    };
    shared.attach();
    let id = shared.id;
    let rights = shared.pass(&core.shared.rules()).rights();
    let patience = match kind {
        ControllerKind::Discovery => core.limits.discovery_idle_timeout,
        ControllerKind::Io => Nanos(0),
    };
    let keep_alive = KeepAlive::new(keep_alive_ms(connect, core), now);
    let controller = Controller {
        shared,
        reached: connection.local.map(|address| address.ip()),
        configuration: Configuration::default(),
        status: ControllerStatus::default(),
        keep_alive: keep_alive.with_patience(patience),
        features: Features::default(),
        events: AsyncEvents::default(),
        rights,
    };
    connection.arm(core, controller.keep_alive.deadline());
    connection.owner = Owner::Admin(Box::new(controller));
    connection.subsystem = index;
    if kind == ControllerKind::Io {
        connection.belongs(Purpose::Control, core);
    }
    connection.reseat(core);
    settle(connection, connect, ADMIN_IN_CAPSULE_BYTES, core);
    Ok(id)
}

/// Returns the tenant among whose controllers one of the host counts, if it is one.
fn tenant_of(host: &str, subsystem: Option<&Subsystem>, core: &CoreState) -> Option<Arc<str>> {
    let tenants = core.shared.rules().whom(host, &subsystem?.nqn);
    tenants.held_to_account().cloned()
}

/// The subsystem that a host asks for and may use; none for the discovery service.
fn asked_for(
    connection: &Connection,
    data: &ConnectData,
    host: &str,
    core: &CoreState,
) -> Result<Option<Arc<Subsystem>>, Refusal> {
    let wrong = Refusal::in_data(ConnectData::SUBNQN_OFFSET);
    let name = data.subnqn().map_err(|_| wrong)?;
    if name.is_discovery() {
        return Ok(None);
    }
    let found = core.shared.subsystem(name.as_str()).ok_or(wrong)?;
    let (rules, from) = (core.shared.rules(), connection.peer.ip());
    if !found.allows(host) || !rules.admit(host, from, name.as_str()) {
        return Err(Refusal::of(Status::CONNECT_INVALID_HOST));
    }
    Ok(Some(found))
}

/// The keep-alive time-out that a host gets for what it asks for.
fn keep_alive_ms(connect: &Connect, core: &CoreState) -> u32 {
    match connect.keep_alive_timeout_ms {
        0 => core.limits.keep_alive_default_ms,
        asked => asked.max(core.limits.keep_alive_min_ms),
    }
}

/// Where this core keeps a subsystem. A core that does not know it yet asks the host to come again.
fn subsystem_index(subsystem: Option<&Arc<Subsystem>>, core: &CoreState) -> Result<u32, Refusal> {
    let Some(subsystem) = subsystem else {
        return Ok(u32::MAX);
    };
    let known = core
        .subsystems
        .get(subsystem.index as usize)
        .and_then(Option::as_ref);
    if known.is_some_and(|known| known.removing.is_none()) {
        Ok(subsystem.index)
    } else {
        Err(Refusal::BUSY)
    }
}

/// Connect of an I/O queue: joins a controller, which may live on another core.
fn connect_io(
    connection: &mut Connection,
    connect: &Connect,
    data: &ConnectData,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<u16, Refusal> {
    if connect.record_format != 0 {
        return Err(Refusal::of(Status::CONNECT_INCOMPATIBLE_FORMAT));
    }
    if connect.sq_size == 0 || connect.sq_size >= core.limits.queue_entries {
        return Err(Refusal::in_command(Connect::SQSIZE_OFFSET));
    }
    let controller = core.shared.controllers().get(data.cntlid).cloned();
    let controller = controller.ok_or(Refusal::in_data(ConnectData::CNTLID_OFFSET))?;
    let host = host_name(data)?;
    if host != controller.host_nqn {
        return Err(Refusal::in_data(ConnectData::HOSTNQN_OFFSET));
    }
    if data.host_id != controller.host_id {
        return Err(Refusal::in_data(ConnectData::HOSTID_OFFSET));
    }
    let Some(subsystem) = controller.subsystem.clone() else {
        // [NVMe Base 2.0 §3.1.2.3]: a discovery controller has no I/O queues.
        return Err(Refusal::in_command(Connect::QID_OFFSET));
    };
    let name = data
        .subnqn()
        .map_err(|_| Refusal::in_data(ConnectData::SUBNQN_OFFSET))?;
    if name.as_str() != subsystem.nqn {
        return Err(Refusal::in_data(ConnectData::SUBNQN_OFFSET));
    }
    let (rules, from) = (core.shared.rules(), connection.peer.ip());
    let pass = controller.pass_from(&rules, from);
    if !subsystem.allows(&host) || matches!(pass, Pass::Refused) {
        return Err(Refusal::of(Status::CONNECT_INVALID_HOST));
    }
    let index = subsystem_index(Some(&subsystem), core)?;
    let mut queues = controller.queues();
    if queues.dead {
        return Err(Refusal::in_data(ConnectData::CNTLID_OFFSET));
    }
    if !queues.ready {
        return Err(Refusal::of(Status::COMMAND_SEQUENCE_ERROR));
    }
    if connect.queue_id > queues.granted {
        return Err(Refusal::in_command(Connect::QID_OFFSET));
    }
    if queues.places.contains_key(&connect.queue_id) {
        return Err(Refusal::in_command(Connect::QID_OFFSET));
    }
    let place = Place {
        core: core.index,
        connection: connection.key,
    };
    queues.places.insert(connect.queue_id, place);
    let terms = QueueTerms::of(connect, connection.output.format);
    queues.terms.insert(connect.queue_id, terms);
    // While the queues are locked: a controller that is ended meanwhile waits for this one, too.
    controller.attach();
    let means_it = queues.classes && core.switch.knobs().lanes == Lanes::PerClass;
    drop(queues);
    let class = means_it.then(|| Class::from_connect_attributes(connect.attributes.0));
    connection.set_class(class, core, cx);
    let id = controller.id;
    connection.rights = pass.rights();
    connection.owner = Owner::Io(controller);
    connection.subsystem = index;
    connection.belongs(Purpose::Data, core);
    connection.reseat(core);
    connection.enroll(core);
    settle(connection, connect, core.limits.in_capsule_bytes, core);
    core.undealt.push(connection.key);
    Ok(id)
}

/// The queue pair is connected.
fn settle(
    connection: &mut Connection,
    connect: &Connect,
    capsule_data_bytes: u32,
    core: &mut CoreState,
) {
    let entries = u32::from(connect.sq_size) + 1;
    let flow_control = !connect.attributes.disables_sq_flow_control();
    connection
        .qpair
        .connect(connect.queue_id, entries, flow_control);
    connection.go_live(capsule_data_bytes, core);
}

/// CAP of our controllers.
fn capabilities(controller: &Controller, core: &CoreState) -> Capabilities {
    let command_sets = if controller.is_discovery() {
        Capabilities::CSS_NVM
    } else {
        Capabilities::CSS_NVM | Capabilities::CSS_COMMAND_SETS
    };
    Capabilities {
        max_queue_entries: core.limits.queue_entries - 1,
        contiguous_queues: true,
        arbitration: 0,
        timeout: READY_TIMEOUT_500_MS,
        subsystem_reset: false,
        command_sets,
        page_shift_min: 0,
        page_shift_max: 0,
        ready_modes: Capabilities::CRMS_WITH_MEDIA,
    }
}

fn property_get(
    controller: &Controller,
    get: &PropertyGet,
    core: &CoreState,
) -> Result<u64, Status> {
    let size = get
        .property
        .size()
        .ok_or(Status::INVALID_FIELD.with_dnr())?;
    if size != get.size {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    Ok(match get.property {
        Property::CAP => capabilities(controller, core).to_bits(),
        Property::VS => u64::from(Version::V2_0.0),
        Property::CC => u64::from(controller.configuration.0),
        Property::CSTS => u64::from(controller.status.0),
        Property::CRTO => u64::from(READY_TIMEOUT_500_MS),
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    })
}

/// Whether a Property Set asks for a shutdown that has to flush first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// CC.SHN 01b. `[NVMe Base 2.0 §3.6.2]`
    Normal,
}

/// CC.SHN of a normal shutdown.
const SHN_NORMAL: u8 = 0b01;

/// The caches that a normal shutdown flushes are flushed, or one of them failed: then the host is
/// told so, and may ask again.
pub(crate) fn shutdown_ended(controller: &mut Controller, flushed: bool) {
    let status = controller.status;
    if status.shutdown() != ControllerStatus::SHUTDOWN_OCCURRING.shutdown() {
        // The host has enabled the controller again meanwhile.
        return;
    }
    if flushed {
        controller.status = status.with_shutdown(ControllerStatus::SHUTDOWN_COMPLETE);
        return;
    }
    controller.status = status.with_shutdown(ControllerStatus::default());
    controller.configuration = controller.configuration.with_shutdown(0);
    controller.shared.queues().ready = controller.configuration.enabled();
}

/// Property Set: only CC can be set. `[NVMe Base 2.0 §3.1.3.5]`
fn property_set(
    controller: &mut Controller,
    set: &PropertySet,
    core: &mut CoreState,
    now: Time,
) -> Result<Shutdown, Status> {
    if set.property != Property::CC || set.property.size() != Some(set.size) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let value = u32::try_from(set.value & 0xffff_ffff).expect("masked to 32 bits");
    let wanted = Configuration(value);
    let was = controller.configuration;
    let starts = wanted.enabled() && !was.enabled();
    // Before anything is changed: a shutdown that began with a refused value would never end.
    if starts && !is_supported(wanted, controller.is_discovery()) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let mut shutdown = Shutdown::No;
    if wanted.shutdown() != 0 && was.shutdown() == 0 {
        controller.shared.queues().ready = false;
        let state = if wanted.shutdown() == SHN_NORMAL {
            shutdown = Shutdown::Normal;
            ControllerStatus::SHUTDOWN_OCCURRING
        } else {
            ControllerStatus::SHUTDOWN_COMPLETE
        };
        controller.status = controller.status.with_shutdown(state);
    }
    if starts {
        controller.status = ControllerStatus::READY;
        controller.keep_alive.restart(now);
        controller.shared.queues().ready = true;
    }
    if !wanted.enabled() && was.enabled() {
        // A reset: I/O queues end, settings return to their defaults. [NVMe Base 2.0 §3.7.2]
        controller.status = ControllerStatus(controller.status.0 & !ControllerStatus::READY.0);
        controller.features = Features::default();
        controller.events = AsyncEvents::default();
        let mut queues = controller.shared.queues();
        queues.ready = false;
        queues.granted = core.limits.io_queues;
        // Of the Host Extensions feature, as the features above.
        queues.classes = false;
        drop(queues);
        core.actions
            .push(Action::EndQueues(Arc::clone(&controller.shared)));
    }
    controller.configuration = wanted;
    Ok(shutdown)
}

/// Whether CC asks for what we have: 64-byte commands, 16-byte completions, 4 KiB pages, round
/// robin. Discovery hosts leave the entry sizes zero.
fn is_supported(wanted: Configuration, discovery: bool) -> bool {
    let sizes = (wanted.sq_entry_shift(), wanted.cq_entry_shift());
    let entries = sizes == (6, 4) || (discovery && sizes == (0, 0));
    entries
        && wanted.page_shift() == 0
        && wanted.arbitration() == 0
        && matches!(wanted.command_set(), 0b000 | 0b110)
}
