//! Connect: creates a controller, or adds an I/O queue to one. `[NVMe Base 2.0 §6.3]`

use crate::authentication::Authentication;
use crate::authentication::standing::Standing;
use crate::controller::async_events::AsyncEvents;
use crate::controller::keep_alive::KeepAlive;
use crate::controller::registers::Registers;
use crate::controller::registry::{
    ConnectionPlace, ControllerKind, ControllerLimit, QueueTerms, Queues, SharedController,
};
use crate::controller::reply::View;
use crate::controller::state::{Controller, Features};
use crate::permit::{ConnectionPermit, PermitRefused};
use crate::qos::access::{AccessDecision, AccessRules, Rights};
use crate::stats::CoreStats;
use crate::subsystem::Subsystem;
use base::mutation::{self, Mutation};
use reactor::tls::Proven;
use secure::chap::Secret;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use switch::Class;
use wire::fabrics::{Connect, ConnectData, InvalidParameter};
use wire::nvme::{NqnError, Status};
use wire::tcp::PduFormat;

/// Refusal of a Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    /// The offending parameter, for dword 0.
    pub(crate) parameter: Option<InvalidParameter>,
    /// The limit that was reached.
    pub(crate) limit: Option<Reached>,
    /// The host's name belongs to a tenant, and its address is outside of that tenant's networks.
    pub(crate) from_elsewhere: bool,
    /// The proofs of its name that the host has to give and did not.
    pub(crate) missing: Authentication,
}

/// A limit that refuses a Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// A limit on controllers.
    Controllers(ControllerLimit),
    /// A limit on connections and their queues.
    Connections(PermitRefused),
}

impl Reached {
    /// Counts a Connect refused by this limit.
    pub(crate) fn count(self, stats: &mut CoreStats) {
        match self {
            Self::Controllers(limit) => limit.count(stats),
            Self::Connections(limit) => limit.count(stats),
        }
    }
}

impl Refusal {
    /// Without DNR, because a later Connect may succeed.
    const BUSY: Self = Self {
        status: Status::CONNECT_CONTROLLER_BUSY,
        parameter: None,
        limit: None,
        from_elsewhere: false,
        missing: Authentication {
            tls: false,
            chap: false,
        },
    };

    /// The secret by which the host has authenticated was removed at this moment.
    pub(crate) const REMOVED: Self = Self::of(Status::AUTHENTICATION_REQUIRED);

    /// The queue exists already. `[NVMe Base 2.1 §3.3.2.3]` Without DNR, because its connection may
    /// have been closed without the target having noticed yet.
    const QUEUE_IN_USE: Self = Self {
        status: Status::COMMAND_SEQUENCE_ERROR,
        ..Self::BUSY
    };

    const fn of(status: Status) -> Self {
        Self {
            status: status.with_dnr(),
            ..Self::BUSY
        }
    }

    /// The refusal of a host that may not use the subsystem.
    fn not_allowed(rules: &AccessRules, host: &str, from: IpAddr) -> Self {
        Self {
            from_elsewhere: !rules.may_use_name(host, from),
            ..Self::of(Status::CONNECT_INVALID_HOST)
        }
    }

    /// The refusal of a host that has not proved its name.
    const fn unproven(missing: Authentication) -> Self {
        Self {
            missing,
            ..Self::of(Status::CONNECT_INVALID_HOST)
        }
    }

    /// Returns why a host could not prove its name.
    pub(crate) const fn why_unproven(&self) -> &'static str {
        match self.missing.tls {
            true => "the host has not proved its name",
            false => "there is no secret for this host; add one to its chap_secrets",
        }
    }

    const fn full(limit: Reached) -> Self {
        Self {
            limit: Some(limit),
            ..Self::BUSY
        }
    }

    const fn invalid(parameter: InvalidParameter) -> Self {
        Self {
            parameter: Some(parameter),
            ..Self::of(Status::CONNECT_INVALID_PARAMETERS)
        }
    }

    const fn in_command(offset: u16) -> Self {
        Self::invalid(InvalidParameter::in_command(offset))
    }

    const fn in_data(offset: u16) -> Self {
        Self::invalid(InvalidParameter::in_data(offset))
    }
}

/// The connection on which a Connect arrived.
pub(crate) struct Origin<'a> {
    pub(crate) permit: &'a mut ConnectionPermit,
    pub(crate) peer: SocketAddr,
    /// The target's address, if known.
    pub(crate) local: Option<SocketAddr>,
    /// What TLS proved about the host.
    pub(crate) proven: Option<&'a Proven>,
    /// The host has authenticated this I/O queue.
    pub(crate) authenticated: bool,
    pub(crate) place: ConnectionPlace,
    /// The format of the connection's PDUs.
    pub(crate) format: PduFormat,
    /// Returns true for a subsystem that the core has and that is not being removed.
    pub(crate) serves: &'a dyn Fn(u32) -> bool,
}

impl Origin<'_> {
    /// Returns the proofs of the host's name that the connection has given.
    const fn given(&self) -> Authentication {
        Authentication {
            tls: self.proven.is_some(),
            chap: false,
        }
    }
}

/// Index of a subsystem for connections that have none.
pub(crate) const NO_SUBSYSTEM: u32 = u32::MAX;

/// Returns HOSTNQN; empty for a host without a name, which is accepted only where any host is.
fn host_name(data: &ConnectData) -> Result<String, Refusal> {
    match data.hostnqn() {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(NqnError::Empty) => Ok(String::new()),
        Err(_) => Err(Refusal::in_data(ConnectData::HOSTNQN_OFFSET)),
    }
}

/// Refuses names other than those of the TLS key. `[NVMe-TCP 1.1 §3.6.1.5]`
fn check_proven(data: &ConnectData, proven: Option<&Proven>) -> Result<(), Refusal> {
    let Some(proven) = proven.filter(|_| !mutation::active(Mutation::TlsNameNotBound)) else {
        return Ok(());
    };
    if !data
        .hostnqn()
        .is_ok_and(|name| name.as_str() == proven.host_nqn)
    {
        return Err(Refusal::in_data(ConnectData::HOSTNQN_OFFSET));
    }
    if !data
        .subnqn()
        .is_ok_and(|name| name.as_str() == proven.subsystem_nqn)
    {
        return Err(Refusal::in_data(ConnectData::SUBNQN_OFFSET));
    }
    Ok(())
}

/// Handles Connect of an admin queue: creates a controller, which is pending if its host has to
/// authenticate. Also returns the index of its subsystem.
pub(crate) fn admin(
    connect: &Connect,
    data: &ConnectData,
    origin: &mut Origin<'_>,
    view: &View<'_>,
) -> Result<(Controller, u32), Refusal> {
    let limits = view.limits;
    if connect.record_format != 0 {
        return Err(Refusal::of(Status::CONNECT_INCOMPATIBLE_FORMAT));
    }
    if connect.sq_size == 0 || connect.sq_size >= limits.queue_entries.max(32) {
        return Err(Refusal::in_command(Connect::SQSIZE_OFFSET));
    }
    if data.cntlid != ConnectData::CNTLID_DYNAMIC {
        return Err(Refusal::in_data(ConnectData::CNTLID_OFFSET));
    }
    let host = host_name(data)?;
    check_proven(data, origin.proven)?;
    if data.host_id == [0; 16] {
        return Err(Refusal::in_data(ConnectData::HOSTID_OFFSET));
    }
    let subsystem = wanted_subsystem(data, &host, origin, view)?;
    let is_pending = match &subsystem {
        Some(subsystem) => check_proofs(&host, subsystem, origin, view)?,
        None => false,
    };
    let (kind, patience) = match subsystem {
        Some(_) => (ControllerKind::Io, limits.controller_idle_timeout),
        None => (ControllerKind::Discovery, limits.discovery_idle_timeout),
    };
    let index = subsystem_index(subsystem.as_ref(), origin)?;
    let host = (host, data.host_id, is_pending);
    let shared = register(connect, kind, subsystem, host, origin, view)?;
    let keep_alive = KeepAlive::new(keep_alive_ms(connect, view), view.now);
    let controller = Controller {
        rights: shared.decide(&view.shared.rules()).rights(),
        shared,
        reached: origin.local.map(|address| address.ip()),
        registers: Registers::default(),
        keep_alive: keep_alive.with_patience(patience),
        features: Features::default(),
        error_recovery: BTreeMap::new(),
        events: AsyncEvents::default(),
        aborts: 0,
        uncached: Cell::default(),
    };
    Ok((controller, index))
}

/// Assigns an identifier to a new controller, within the limits, and attaches the admin queue. A
/// pending one counts for its address only.
fn register(
    connect: &Connect,
    kind: ControllerKind,
    subsystem: Option<Arc<Subsystem>>,
    (name, id, is_pending): (String, [u8; 16], bool),
    origin: &mut Origin<'_>,
    view: &View<'_>,
) -> Result<Arc<SharedController>, Refusal> {
    let limits = view.limits;
    let (peer, proven) = (origin.peer, origin.given());
    let mut tenant = tenant_of(&name, subsystem.as_deref(), view);
    let mut controllers = view.shared.controllers();
    let full = if is_pending {
        tenant = None;
        controllers.full_by_address(limits, kind, peer.ip(), true)
    } else {
        controllers.full(limits, kind, (&name, proven), peer.ip(), tenant.as_ref())
    };
    if let Some(limit) = full {
        return Err(Refusal::full(Reached::Controllers(limit)));
    }
    enter(connect, tenant.as_ref(), origin, view)?;
    let (admin, granted) = (origin.place, limits.io_queues);
    let standing = Standing::connected(proven, tenant, is_pending);
    let make = |cntlid| {
        SharedController::new(cntlid, kind, subsystem, (name, id), peer, admin, granted)
            .with(standing)
    };
    let shared = controllers.insert(limits, make);
    drop(controllers);
    let shared = shared.ok_or(Refusal::full(Reached::Controllers(ControllerLimit::All)))?;
    shared.attach();
    Ok(shared)
}

/// Counts a pending controller for its host and its tenant, after the host has authenticated by a
/// secret.
pub(crate) fn authenticated(
    controller: &SharedController,
    secret: Option<Secret>,
    permit: &mut ConnectionPermit,
    view: &View<'_>,
) -> Result<(), Refusal> {
    let host = &*controller.host_nqn;
    let tenant = tenant_of(host, controller.subsystem.as_deref(), view);
    let by_chap = Authentication {
        tls: false,
        chap: true,
    };
    let proven = controller.proven().and(by_chap);
    let controllers = view.shared.controllers();
    let full = controllers.full_by_name(view.limits, (host, proven), tenant.as_ref(), 0);
    if let Some(limit) = full {
        return Err(Refusal::full(Reached::Controllers(limit)));
    }
    let joined = permit.join(tenant.as_ref(), view.limits);
    joined.map_err(|limit| Refusal::full(Reached::Connections(limit)))?;
    controller.standing().tenant = tenant;
    controller.authenticate(secret, &view.shared.keys);
    Ok(())
}

/// Counts the entries of the queue, and the connection for its tenant; this is the last step,
/// because it cannot be undone.
fn enter(
    connect: &Connect,
    tenant: Option<&Arc<str>>,
    origin: &mut Origin<'_>,
    view: &View<'_>,
) -> Result<(), Refusal> {
    let entries = usize::from(connect.sq_size) + 1;
    let entered = origin.permit.enter(entries, tenant, view.limits);
    entered.map_err(|limit| Refusal::full(Reached::Connections(limit)))
}

/// Returns the tenant that a controller of the host counts for, if any.
fn tenant_of(host: &str, subsystem: Option<&Subsystem>, view: &View<'_>) -> Option<Arc<str>> {
    let tenants = view.shared.rules().host_tenants(host, &subsystem?.nqn);
    tenants.held_to_account().cloned()
}

/// Returns the subsystem that a host requests and may use; `None` for the discovery service.
fn wanted_subsystem(
    data: &ConnectData,
    host: &str,
    origin: &Origin<'_>,
    view: &View<'_>,
) -> Result<Option<Arc<Subsystem>>, Refusal> {
    let wrong = Refusal::in_data(ConnectData::SUBNQN_OFFSET);
    let name = data.subnqn().map_err(|_| wrong)?;
    if name.is_discovery() {
        return Ok(None);
    }
    let found = view.shared.subsystem(name.as_str()).ok_or(wrong)?;
    let (rules, from) = (view.shared.rules(), origin.peer.ip());
    if !found.allows(host) || !rules.admit(host, from, name.as_str()) {
        return Err(Refusal::not_allowed(&rules, host, from));
    }
    Ok(Some(found))
}

/// Returns true if a host has to authenticate an admin queue: its subsystem or its tenant requires
/// it, or it has a secret and does not use TLS.
///
/// # Errors
/// The refusal of a host that cannot give a proof that its subsystem, its tenant or its keys require.
fn check_proofs(
    host: &str,
    subsystem: &Subsystem,
    origin: &Origin<'_>,
    view: &View<'_>,
) -> Result<bool, Refusal> {
    let mut missing = view
        .shared
        .required(host, subsystem)
        .without(origin.given());
    let has_secret = !view.shared.keys.current().chap(host).is_empty();
    let authenticates = missing.chap || has_secret && origin.proven.is_none();
    missing.chap &= !has_secret;
    if missing.is_none() || mutation::active(Mutation::TlsProofNotAsked) {
        return Ok(authenticates);
    }
    Err(Refusal::unproven(missing))
}

/// Returns the keep-alive time-out granted for the requested one.
fn keep_alive_ms(connect: &Connect, view: &View<'_>) -> u32 {
    match connect.keep_alive_timeout_ms {
        0 => view.limits.keep_alive_default_ms,
        asked => asked.max(view.limits.keep_alive_min_ms),
    }
}

/// Returns the core's index of a subsystem. A core that does not have it yet makes the host retry.
fn subsystem_index(
    subsystem: Option<&Arc<Subsystem>>,
    origin: &Origin<'_>,
) -> Result<u32, Refusal> {
    match subsystem {
        None => Ok(NO_SUBSYSTEM),
        Some(subsystem) if (origin.serves)(subsystem.index) => Ok(subsystem.index),
        Some(_) => Err(Refusal::BUSY),
    }
}

/// An I/O queue that joined its controller.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) controller: Arc<SharedController>,
    /// Index of the subsystem.
    pub(crate) subsystem: u32,
    pub(crate) rights: Option<Arc<Rights>>,
    /// The class that the host named, if any.
    pub(crate) class: Option<Class>,
}

/// Handles Connect of an I/O queue: adds it to a controller, which may live on another core. The
/// class named by the host is used only if `classes` is true. Returns `None` if the host has to
/// authenticate the queue first, and nothing has changed.
pub(crate) fn io(
    connect: &Connect,
    data: &ConnectData,
    classes: bool,
    origin: &mut Origin<'_>,
    view: &View<'_>,
) -> Result<Option<Joined>, Refusal> {
    if connect.record_format != 0 {
        return Err(Refusal::of(Status::CONNECT_INCOMPATIBLE_FORMAT));
    }
    if connect.sq_size == 0 || connect.sq_size >= view.limits.queue_entries {
        return Err(Refusal::in_command(Connect::SQSIZE_OFFSET));
    }
    let (controller, subsystem, rights) = named_controller(data, origin, view)?;
    let index = subsystem_index(Some(&subsystem), origin)?;
    if controller.is_superseded() {
        return Err(Refusal::in_data(ConnectData::CNTLID_OFFSET));
    }
    // [NVMe-TCP 1.1 §3.6.1]: TLS already proves that the queue belongs to the host.
    let authenticates = controller.standing().queues_authenticate && origin.proven.is_none();
    let mut queues = controller.queues();
    check_queue(&queues, connect)?;
    let is_trusted = mutation::active(Mutation::ChapQueueNotAuthenticated);
    if authenticates && !origin.authenticated && !is_trusted {
        return Ok(None);
    }
    let tenant = controller.standing().tenant.clone();
    enter(connect, tenant.as_ref(), origin, view)?;
    queues.created = true;
    queues.places.insert(connect.queue_id, origin.place);
    let terms = QueueTerms::of(connect, origin.format);
    queues.terms.insert(connect.queue_id, terms);
    // While the queues are locked: a controller that is ending in the meantime then waits for this
    // queue, too.
    controller.attach();
    let named = queues.classes && classes;
    drop(queues);
    let class = named.then(|| Class::from_connect_attributes(connect.attributes.0));
    Ok(Some(Joined {
        controller,
        subsystem: index,
        rights,
        class,
    }))
}

/// Returns the controller that the host names for an I/O queue, its subsystem, and the rights of the
/// host.
#[expect(clippy::type_complexity, reason = "the caller takes it apart")]
fn named_controller(
    data: &ConnectData,
    origin: &Origin<'_>,
    view: &View<'_>,
) -> Result<(Arc<SharedController>, Arc<Subsystem>, Option<Arc<Rights>>), Refusal> {
    let controller = view.shared.controllers().get(data.cntlid).cloned();
    let controller = controller.ok_or(Refusal::in_data(ConnectData::CNTLID_OFFSET))?;
    let host = host_name(data)?;
    if host != controller.host_nqn {
        return Err(Refusal::in_data(ConnectData::HOSTNQN_OFFSET));
    }
    check_proven(data, origin.proven)?;
    // All queues of a controller use TLS, or none: who only claims the host's name gets none.
    if origin.proven.is_some() != controller.proven().tls
        && !mutation::active(Mutation::TlsQueueNotBound)
    {
        return Err(Refusal::of(Status::CONNECT_INVALID_HOST));
    }
    // HOSTID is that of the admin queue's Connect: some hosts send a different one, or none, for
    // I/O queues.
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
    let (rules, from) = (view.shared.rules(), origin.peer.ip());
    let decision = controller.decide_from(&rules, from);
    if !subsystem.allows(&host) || matches!(decision, AccessDecision::Refused) {
        return Err(Refusal::not_allowed(&rules, &host, from));
    }
    if view.shared.is_unproven(&controller) {
        return Err(Refusal::of(Status::CONNECT_INVALID_HOST));
    }
    Ok((controller, subsystem, decision.rights()))
}

/// Checks that a queue can be added to its controller.
fn check_queue(queues: &Queues, connect: &Connect) -> Result<(), Refusal> {
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
        return Err(Refusal::QUEUE_IN_USE);
    }
    Ok(())
}
