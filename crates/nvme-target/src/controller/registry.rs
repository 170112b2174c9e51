//! The controllers of the target: the part of each that its queues on other cores need.
//!
//! Used at Connect and by admin commands, never by I/O, so plain locks are sufficient.

use crate::authentication::Authentication;
use crate::authentication::standing::Standing;
use crate::limits::{ERROR_LOG_ENTRIES, Limits, is_reserved};
use crate::qos::access::{AccessDecision, AccessRules, HostTenants};
use crate::request::Ticket;
use crate::stats::CoreStats;
use crate::subsystem::Subsystem;
use base::mutation::{self, Mutation};
use base::{SlabKey, Time};
use reactor::address::network;
use reactor::tls::Keys;
use secure::chap::Secret;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::fabrics::Connect;
use wire::nvme::feature::HostBehavior;
use wire::nvme::log_page::ErrorEntry;
use wire::tcp::PduFormat;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every holder changes one field at a time, so the data of a poisoned lock is still valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every controller, by its identifier.
#[derive(Debug, Default)]
pub(crate) struct Controllers {
    by_id: BTreeMap<u16, Arc<SharedController>>,
    last_id: u16,
}

impl Controllers {
    /// Adds a controller under the identifier of the range that has been unused for longest.
    pub(crate) fn insert(
        &mut self,
        limits: &Limits,
        make: impl FnOnce(u16) -> SharedController,
    ) -> Option<Arc<SharedController>> {
        if self.by_id.len() >= limits.controllers {
            return None;
        }
        let (first, last) = (limits.first_controller_id, limits.last_controller_id);
        let behind = (self.last_id.max(first - 1) + 1)..=last;
        let mut ids = behind.chain(first..=last);
        let id = ids.find(|id| !self.by_id.contains_key(id))?;
        self.last_id = id;
        let controller = Arc::new(make(id));
        self.by_id.insert(id, Arc::clone(&controller));
        Some(controller)
    }

    /// Returns the identifier of the newest controller, 0 before the first.
    pub(crate) const fn newest(&self) -> u16 {
        self.last_id
    }

    /// Continues after the newest controller of the process before: a host may still refer to the
    /// identifier of one that has ended.
    pub(crate) const fn set_newest(&mut self, id: u16) {
        self.last_id = id;
    }

    /// Adds a controller under the identifier that it had in the process before; returns false if it
    /// is taken.
    pub(crate) fn insert_as(&mut self, controller: Arc<SharedController>) -> bool {
        match self.by_id.entry(controller.id) {
            Entry::Vacant(place) => {
                place.insert(controller);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Returns the limit that keeps a host of this tenant from a further controller; `None` if it may
    /// have one. Scans all controllers, so it is for Connect only.
    pub(crate) fn full(
        &self,
        limits: &Limits,
        kind: ControllerKind,
        host: (&str, Authentication),
        from: IpAddr,
        tenant: Option<&Arc<str>>,
    ) -> Option<ControllerLimit> {
        let by_name = self.full_by_name(limits, host, tenant, 1);
        by_name.or_else(|| self.full_by_address(limits, kind, from, tenant.is_none()))
    }

    /// Returns the limit that keeps a host from a further controller, by its address and the number
    /// of all controllers. Hosts without a tenant (`is_alone`) choose their names, so the reserve is
    /// theirs by address.
    pub(crate) fn full_by_address(
        &self,
        limits: &Limits,
        kind: ControllerKind,
        from: IpAddr,
        is_alone: bool,
    ) -> Option<ControllerLimit> {
        let from = network(from);
        let (mut of_address, mut of_discovery, mut of_discovery_here) = (0, 0, 0);
        for other in self.by_id.values() {
            let here = network(other.peer.ip()) == from;
            let discovers = other.kind == ControllerKind::Discovery;
            of_address += usize::from(here);
            of_discovery += usize::from(discovers);
            of_discovery_here += usize::from(discovers && here);
        }
        let discovers = kind == ControllerKind::Discovery;
        let discovery_here = limits.discovery_controllers - limits.discovery_controllers / 4;
        let of_all = self.by_id.len();
        let (most, taken) = (limits.discovery_controllers, of_discovery + 1);
        let full = [
            (
                of_address >= limits.controllers_per_address
                    || discovers
                        && (of_discovery_here >= discovery_here
                            || is_reserved(most, taken, of_discovery_here + 1)),
                ControllerLimit::Address,
            ),
            (
                discovers && of_discovery >= limits.discovery_controllers,
                ControllerLimit::Discovery,
            ),
            (of_all >= limits.controllers, ControllerLimit::All),
            (
                is_alone && is_reserved(limits.controllers, of_all + 1, of_address + 1),
                ControllerLimit::Address,
            ),
        ];
        full.into_iter()
            .find_map(|(full, limit)| full.then_some(limit))
    }

    /// Returns the limit that keeps a host from a further controller, by its name and its tenant.
    /// `new` is 1 if that controller is not registered yet, otherwise 0; one that waits for the
    /// authentication of its host does not count.
    pub(crate) fn full_by_name(
        &self,
        limits: &Limits,
        (host, proven): (&str, Authentication),
        tenant: Option<&Arc<str>>,
        new: usize,
    ) -> Option<ControllerLimit> {
        let (mut of_host, mut of_tenant) = (0, 0);
        for other in self.by_id.values() {
            let standing = other.standing();
            // Those who claim a name use up nothing of the host that has proved it.
            let same_host = other.host_nqn == host
                && !standing.is_pending
                && proven.without(standing.proven).is_none();
            of_host += usize::from(same_host);
            of_tenant += usize::from(tenant.is_some() && standing.tenant.as_ref() == tenant);
        }
        let of_all = self.by_id.len() + new;
        let is_reserved =
            tenant.is_some() && is_reserved(limits.controllers, of_all, of_tenant + 1);
        if of_host >= limits.controllers_per_host {
            return Some(ControllerLimit::Host);
        }
        let is_full = of_tenant >= limits.controllers_per_tenant || is_reserved;
        is_full.then_some(ControllerLimit::Tenant)
    }

    pub(crate) fn get(&self, id: u16) -> Option<&Arc<SharedController>> {
        self.by_id.get(&id)
    }

    pub(crate) fn remove(&mut self, id: u16) {
        self.by_id.remove(&id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<SharedController>> {
        self.by_id.values()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerLimit {
    /// Controllers of a host.
    Host,
    /// Controllers of hosts at an address.
    Address,
    /// Controllers of the hosts of a tenant.
    Tenant,
    /// Controllers of the discovery service.
    Discovery,
    /// All controllers.
    All,
}

impl ControllerLimit {
    /// Counts a Connect refused by this limit.
    pub(crate) fn count(self, stats: &mut CoreStats) {
        stats.controllers_refused += 1;
        match self {
            Self::Host => stats.controllers_refused_per_host += 1,
            Self::Address => stats.controllers_refused_per_address += 1,
            Self::Tenant => stats.controllers_refused_per_tenant += 1,
            Self::Discovery => stats.controllers_refused_discovery += 1,
            Self::All => {}
        }
    }
}

/// The type of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerKind {
    /// Gives access to namespaces.
    Io,
    /// Serves the discovery log page.
    Discovery,
}

/// Location of a connection: its core and its key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionPlace {
    pub(crate) core: usize,
    pub(crate) connection: SlabKey,
}

/// The part of a controller that its queues on other cores need.
#[derive(Debug)]
pub(crate) struct SharedController {
    pub(crate) id: u16,
    pub(crate) kind: ControllerKind,
    /// `None` for a discovery controller.
    pub(crate) subsystem: Option<Arc<Subsystem>>,
    pub(crate) host_nqn: String,
    pub(crate) host_id: [u8; 16],
    pub(crate) peer: SocketAddr,
    /// The proofs of its host.
    standing: Mutex<Standing>,
    /// Number of namespace additions and removals in its subsystem before it was created.
    changes: u32,
    /// Location of its admin queue.
    pub(crate) admin: ConnectionPlace,
    queues: Mutex<Queues>,
    /// Cached result of the rules for its host.
    asked: Mutex<Option<Asked>>,
    attached: Mutex<Attached>,
    errors: Mutex<VecDeque<ErrorEntry>>,
    error_count: AtomicU64,
}

/// Result of the rules for a host in a subsystem.
#[derive(Clone, Debug)]
struct Asked {
    rules: Arc<AccessRules>,
    decision: AccessDecision,
    tenants: Arc<HostTenants>,
}

/// Connections that a controller still has in the target.
#[derive(Debug, Default)]
struct Attached {
    /// Connections of the controller, counted until they have no request in a device.
    connections: usize,
    /// Connections that may still change data on a device.
    harmful: usize,
    /// End Controller commands that wait for the last of these connections, and their cores.
    waiting: Vec<(usize, Ticket)>,
    /// A reset or shutdown waits until only the admin queue may still change data.
    settles: bool,
}

/// The I/O queues of a controller.
#[derive(Debug)]
pub(crate) struct Queues {
    /// I/O queues may connect, because the controller is enabled.
    pub(crate) ready: bool,
    /// The controller is ending.
    pub(crate) dead: bool,
    /// Number of I/O queues granted by Number of Queues.
    pub(crate) granted: u16,
    /// A queue was connected since the controller's reset, so the number of queues is fixed.
    pub(crate) created: bool,
    /// The host uses the priority class at the Connect of a queue.
    pub(crate) classes: bool,
    /// The host's behavior (Host Behavior Support).
    pub(crate) behavior: HostBehavior,
    /// Location of each queue, by QID.
    pub(crate) places: BTreeMap<u16, ConnectionPlace>,
    /// Time at which the last closed queue closed.
    pub(crate) left: Time,
    /// Connect parameters of each queue, by QID, including queues that have closed.
    pub(crate) terms: BTreeMap<u16, QueueTerms>,
}

impl Queues {
    /// Removes the queue of this identifier from the controller if it is the one at `place`.
    pub(crate) fn leave(&mut self, id: u16, place: ConnectionPlace, now: Time) {
        if self.places.get(&id) == Some(&place) {
            self.places.remove(&id);
            self.left = now;
        }
    }
}

/// Parameters of an I/O queue from its connection and its Connect command.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QueueTerms {
    /// Entries of the queue.
    pub(crate) depth: u32,
    /// Header digests are in use.
    pub(crate) header_digest: bool,
    /// Data digests are in use.
    pub(crate) data_digest: bool,
}

impl QueueTerms {
    /// Returns the terms of a queue that `connect` connects with PDUs of this format.
    pub(crate) fn of(connect: &Connect, format: PduFormat) -> Self {
        Self {
            depth: u32::from(connect.sq_size) + 1,
            header_digest: format.header_digest,
            data_digest: format.data_digest,
        }
    }
}

impl SharedController {
    pub(crate) fn new(
        id: u16,
        kind: ControllerKind,
        subsystem: Option<Arc<Subsystem>>,
        host: (String, [u8; 16]),
        peer: SocketAddr,
        admin: ConnectionPlace,
        granted: u16,
    ) -> Self {
        let queues = Queues {
            ready: false,
            dead: false,
            granted,
            created: false,
            classes: false,
            behavior: HostBehavior::default(),
            places: BTreeMap::new(),
            left: Time::ZERO,
            terms: BTreeMap::new(),
        };
        let changes = subsystem.as_ref().map(|s| s.lock().changes());
        Self {
            id,
            kind,
            subsystem,
            changes: changes.unwrap_or_default(),
            host_nqn: host.0,
            host_id: host.1,
            peer,
            standing: Mutex::default(),
            admin,
            queues: Mutex::new(queues),
            asked: Mutex::default(),
            attached: Mutex::default(),
            errors: Mutex::default(),
            error_count: AtomicU64::new(0),
        }
    }

    /// Sets the standing of its host.
    pub(crate) fn with(self, standing: Standing) -> Self {
        *self.standing() = standing;
        self
    }

    /// Returns the standing of its host.
    pub(crate) fn standing(&self) -> MutexGuard<'_, Standing> {
        lock(&self.standing)
    }

    /// Notes that its host has authenticated by a secret, which counts as long as it is among the
    /// keys.
    pub(crate) fn authenticate(&self, secret: Option<Secret>, keys: &Keys) {
        let mut standing = self.standing();
        standing.authenticate(secret);
        // After a change of the keys, either this or the change finds the secret.
        standing.check(&self.host_nqn, &keys.current());
    }

    /// Returns the proofs of its name that its host has given.
    pub(crate) fn proven(&self) -> Authentication {
        self.standing().proven
    }

    /// Returns true if an identifier by which its host knows a namespace now refers to another
    /// volume: then the controller has to end, so that its host reads the namespaces again.
    pub(crate) fn is_superseded(&self) -> bool {
        let subsystem = self.subsystem.as_ref();
        subsystem.is_some_and(|subsystem| subsystem.supersedes(self.changes))
    }

    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// Returns the decision of these rules on its host; cached after the first call.
    pub(crate) fn decide(&self, rules: &Arc<AccessRules>) -> AccessDecision {
        // The discovery service is open to all hosts.
        self.ask(rules)
            .map_or(AccessDecision::Everything, |asked| asked.decision)
    }

    /// Returns the same decision for one of its queues, which may come from a different address
    /// than the admin queue.
    pub(crate) fn decide_from(&self, rules: &Arc<AccessRules>, from: IpAddr) -> AccessDecision {
        if self.subsystem.is_some() && !rules.may_use_name(&self.host_nqn, from) {
            return AccessDecision::Refused;
        }
        self.decide(rules)
    }

    /// Returns true if its host may no longer use its subsystem, by the subsystem's list or by
    /// these rules.
    pub(crate) fn is_denied(&self, rules: &Arc<AccessRules>) -> bool {
        let subsystem = self.subsystem.as_ref();
        subsystem.is_some_and(|subsystem| subsystem.denies(&self.host_nqn))
            || matches!(self.decide(rules), AccessDecision::Refused)
    }

    /// Returns the tenants of its host by these rules; cached after the first call.
    pub(crate) fn tenants(&self, rules: &Arc<AccessRules>) -> Arc<HostTenants> {
        self.ask(rules)
            .map(|asked| asked.tenants)
            .unwrap_or_default()
    }

    fn ask(&self, rules: &Arc<AccessRules>) -> Option<Asked> {
        let subsystem = self.subsystem.as_ref()?;
        let mut asked = lock(&self.asked);
        if let Some(asked) = asked.as_ref().filter(|a| Arc::ptr_eq(&a.rules, rules)) {
            return Some(asked.clone());
        }
        let tenants = rules.host_tenants(&self.host_nqn, &subsystem.nqn);
        *asked = Some(Asked {
            rules: Arc::clone(rules),
            decision: rules.decide(&self.host_nqn, self.peer.ip(), &subsystem.nqn),
            tenants: Arc::new(tenants),
        });
        asked.clone()
    }

    /// Counts a connection that became one of its queues.
    pub(crate) fn attach(&self) {
        let mut attached = lock(&self.attached);
        attached.connections += 1;
        attached.harmful += 1;
    }

    /// Notes that one of its connections can no longer change data. After the last one, returns the
    /// commands that wait for that; the flag is true if a reset or shutdown waited for this I/O
    /// queue.
    pub(crate) fn disarm(&self) -> (Vec<(usize, Ticket)>, bool) {
        let mut attached = lock(&self.attached);
        assert!(attached.harmful > 0, "a connection is disarmed once");
        attached.harmful -= 1;
        match attached.harmful {
            0 => (std::mem::take(&mut attached.waiting), false),
            1 => (Vec::new(), std::mem::take(&mut attached.settles)),
            _ => (Vec::new(), false),
        }
    }

    /// Returns true if its admin queue is its only connection.
    pub(crate) fn is_alone(&self) -> bool {
        lock(&self.attached).connections == 1
    }

    /// Makes a reset or shutdown wait until its I/O queues can no longer change data; returns false
    /// if none can. Called by its admin queue, which is counted, too.
    pub(crate) fn wait_for_queues(&self) -> bool {
        let mut attached = lock(&self.attached);
        attached.settles = attached.harmful > 1;
        attached.settles
    }

    /// Notes that one of its connections, disarmed before, has ended completely. Returns true for
    /// the last one.
    pub(crate) fn detach(&self) -> bool {
        let mut attached = lock(&self.attached);
        attached.connections -= 1;
        assert!(attached.harmful <= attached.connections, "disarmed first");
        assert!(
            attached.connections > 0 || attached.waiting.is_empty(),
            "a command that waits for the end is told of it"
        );
        attached.connections == 0
    }

    /// Makes a command wait until the controller can no longer change data; returns false if it
    /// cannot.
    pub(crate) fn wait_for_end(&self, core: usize, asker: Ticket) -> bool {
        let mut attached = lock(&self.attached);
        let waits = attached.harmful > 0 && !mutation::active(Mutation::EndControllerEarly);
        if waits {
            attached.waiting.push((core, asker));
        }
        waits
    }

    /// Removes the waiting commands of a closed connection.
    pub(crate) fn forget_waiting(&self, place: ConnectionPlace) {
        let mut attached = lock(&self.attached);
        let theirs =
            |core: usize, asker: Ticket| (core, asker.connection) == (place.core, place.connection);
        attached
            .waiting
            .retain(|&(core, asker)| !theirs(core, asker));
    }

    /// Adds an entry to the error log; the oldest one is dropped if it is full.
    pub(crate) fn log_error(&self, mut entry: ErrorEntry) {
        entry.error_count = self.error_count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut errors = lock(&self.errors);
        if errors.len() == ERROR_LOG_ENTRIES {
            errors.pop_back();
        }
        errors.push_front(entry);
    }

    /// Returns the error log, newest entry first.
    pub(crate) fn errors(&self) -> Vec<ErrorEntry> {
        lock(&self.errors).iter().copied().collect()
    }

    /// Sets the number of errors logged by the process before.
    pub(crate) fn set_error_count(&self, count: u64) {
        self.error_count.store(count, Ordering::Relaxed);
    }

    pub(crate) fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
pub(crate) mod tests;
