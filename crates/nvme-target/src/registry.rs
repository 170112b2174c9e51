//! What all cores share: the configuration, and the controllers that exist.
//!
//! Touched at Connect, by admin commands and by a control plane, never by I/O; so plain locks do.

use crate::barrier::{Barrier, Registry, Scopes};
use crate::limits::{ERROR_LOG_ENTRIES, Limits};
use crate::pause::{Ack, Step};
use crate::poll_group::{Message, Note};
use crate::request::Ticket;
use crate::stats::{CoreStats, PerCore, SharedCoreStats};
use crate::subsystem::Subsystem;
use crate::switch_stats::{SharedLoad, SharedSwitchStats};
use crate::tenant_events::{TenantEvent, TenantEvents};
use crate::tenants::{Pass, Rules, Whom};
use crate::threads::Threads;
use base::SlabKey;
use base::mutation::{self, Mutation};
use reactor::MailboxSender;
use reactor::priority::Standing;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use switch::Knobs;
use wire::nvme::log_page::ErrorEntry;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every holder changes one field at a time, so a poisoned lock still guards something valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A discovery service elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Where it listens.
    pub address: SocketAddr,
}

/// The part that all cores share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) configuration: Mutex<Configuration>,
    pub(crate) controllers: Mutex<Controllers>,
    cores: Mutex<Vec<MailboxSender<Message>>>,
    pub(crate) core_stats: PerCore<SharedCoreStats>,
    pub(crate) switch_stats: PerCore<SharedSwitchStats>,
    /// How busy each class keeps each core.
    pub(crate) loads: PerCore<SharedLoad>,
    /// The same, without that of queues that asked for nothing lately.
    pub(crate) recent: PerCore<SharedLoad>,
    /// By what each core's thread goes before others, where it asked.
    pub(crate) standings: PerCore<OnceLock<Standing>>,
    /// Which threads are in use.
    pub(crate) threads: Threads,
    knobs: Mutex<Option<Knobs>>,
    rules: Mutex<Arc<Rules>>,
    barriers: Mutex<Registry>,
    tenant_events: Mutex<TenantEvents>,
    /// Connections of all cores together.
    connections: Arc<AtomicUsize>,
    /// Commands were not answered when the time to drain was over.
    pub(crate) gave_up: AtomicBool,
}

/// One connection's place among those that the target may have; given back when dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a control plane can change.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) subsystems: BTreeMap<String, Arc<Subsystem>>,
    pub(crate) listeners: Vec<SocketAddr>,
    pub(crate) referrals: Vec<Referral>,
    /// GENCTR: counts the changes that a discovery log page shows.
    pub(crate) generation: u64,
}

impl Shared {
    pub(crate) fn new(limits: Limits, cores: usize) -> Arc<Self> {
        Arc::new(Self {
            limits,
            configuration: Mutex::default(),
            controllers: Mutex::default(),
            cores: Mutex::default(),
            core_stats: PerCore::new(cores),
            switch_stats: PerCore::new(cores),
            loads: PerCore::new(cores),
            recent: PerCore::new(cores),
            standings: PerCore::new(cores),
            threads: Threads::new(cores),
            knobs: Mutex::default(),
            rules: Mutex::default(),
            barriers: Mutex::default(),
            tenant_events: Mutex::default(),
            connections: Arc::default(),
            gave_up: AtomicBool::new(false),
        })
    }

    /// A place for one more connection, if the limit allows it.
    pub(crate) fn take_seat(&self) -> Option<Seat> {
        let limit = self.limits.connections;
        let one_more = |taken: usize| (taken < limit).then_some(taken + 1);
        self.connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(Seat(Arc::clone(&self.connections)))
    }

    pub(crate) fn configuration(&self) -> MutexGuard<'_, Configuration> {
        lock(&self.configuration)
    }

    pub(crate) fn controllers(&self) -> MutexGuard<'_, Controllers> {
        lock(&self.controllers)
    }

    /// How everything is turned, once anybody turned it.
    pub(crate) fn knobs(&self) -> MutexGuard<'_, Option<Knobs>> {
        lock(&self.knobs)
    }

    /// Who hosts are, and what they may do.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.rules))
    }

    /// Puts other rules in force for those who ask from now on; returns those before.
    pub(crate) fn set_rules(&self, rules: Arc<Rules>) -> Arc<Rules> {
        std::mem::replace(&mut lock(&self.rules), rules)
    }

    /// The mailboxes of all cores, in order.
    pub(crate) fn cores(&self) -> MutexGuard<'_, Vec<MailboxSender<Message>>> {
        lock(&self.cores)
    }

    /// Sends a note to one core; fails when that core does not exist or is swamped.
    pub(crate) fn send(&self, core: usize, note: Note) -> Result<(), Message> {
        let sender = self.cores().get(core).cloned();
        match sender {
            Some(sender) => sender.send(Message(note)),
            None => Err(Message(note)),
        }
    }

    /// Sends a note that must not be lost to one core: it always has room for it. Of such notes
    /// there are never more than there are connections, commands, barriers and changes under way,
    /// all of which are limited.
    pub(crate) fn deliver(&self, core: usize, note: Note) {
        let sender = self.cores().get(core).cloned();
        match sender {
            Some(sender) => sender.send_always(Message(note)),
            None => tracing::error!(core, "there is no such core: {note:?} goes nowhere"),
        }
    }

    /// Delivers a note to every core.
    pub(crate) fn deliver_all(&self, note: impl Fn() -> Note) {
        for sender in &*self.cores() {
            sender.send_always(Message(note()));
        }
    }

    /// Sends a notice to every core; a core that is swamped loses it.
    pub(crate) fn send_all(&self, note: impl Fn() -> Note) {
        for (core, sender) in self.cores().iter().enumerate() {
            if sender.send(Message(note())).is_err() {
                tracing::error!(core, "a core's mailbox is full: a notice is lost");
            }
        }
    }

    /// The first core in whose mailbox no more notices fit.
    pub(crate) fn swamped(&self) -> Option<usize> {
        self.cores().iter().position(MailboxSender::is_full)
    }

    pub(crate) fn tenant_events(&self) -> MutexGuard<'_, TenantEvents> {
        lock(&self.tenant_events)
    }

    /// Something happened to a tenant: whoever asks is told, and its hosts that want to know are.
    pub(crate) fn tell(&self, event: TenantEvent) {
        let tenant: Arc<str> = event.tenant.as_str().into();
        self.tenant_events().push(event);
        self.send_all(|| Note::TenantEvent(Arc::clone(&tenant)));
    }

    /// One more barrier: it is in force on all cores as soon as those before it are over.
    pub(crate) fn begin_barrier(&self, barrier: &Arc<Barrier>) {
        // Cores hear of barriers in the order in which the registry puts them in force.
        let mut registry = lock(&self.barriers);
        for next in registry.enter(barrier) {
            self.deliver_all(|| Note::TakeBarrier(Arc::clone(&next)));
        }
    }

    /// A barrier is over, or its command is gone.
    pub(crate) fn end_barrier(&self, barrier: &Arc<Barrier>) {
        let mut registry = lock(&self.barriers);
        let ended = registry.leave(barrier);
        let note = || Note::EndBarrier(Arc::clone(barrier));
        if ended.was_active {
            self.deliver_all(note);
        } else {
            self.deliver(barrier.owner, note());
        }
        for next in ended.next {
            self.deliver_all(|| Note::TakeBarrier(Arc::clone(&next)));
        }
    }

    /// Posts steps to every core; each acknowledges all of them with one acknowledgement.
    pub(crate) fn post(&self, steps: &[Step]) -> Arc<Ack> {
        let cores = self.cores().clone();
        let ack = Ack::new(cores.len());
        for core in cores {
            // A core that missed a change would be of another mind than the others for ever.
            core.send_always(Message(Note::Change {
                steps: steps.to_vec(),
                ack: Arc::clone(&ack),
            }));
        }
        ack
    }

    pub(crate) fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.configuration().subsystems.get(nqn).cloned()
    }
}

/// Every controller, by its identifier.
#[derive(Debug, Default)]
pub(crate) struct Controllers {
    by_id: BTreeMap<u16, Arc<SharedController>>,
    last_id: u16,
}

/// Highest identifier of a dynamic controller: FFF0h to FFFFh are reserved.
const CNTLID_MAX: u16 = 0xffef;

impl Controllers {
    /// Gives a new controller an identifier that was not in use for as long as possible.
    pub(crate) fn insert(
        &mut self,
        limit: usize,
        make: impl FnOnce(u16) -> SharedController,
    ) -> Option<Arc<SharedController>> {
        if self.by_id.len() >= limit {
            return None;
        }
        let mut id = self.last_id;
        loop {
            id = if id >= CNTLID_MAX { 1 } else { id + 1 };
            if !self.by_id.contains_key(&id) {
                break;
            }
            if id == self.last_id {
                return None;
            }
        }
        self.last_id = id;
        let controller = Arc::new(make(id));
        self.by_id.insert(id, Arc::clone(&controller));
        Some(controller)
    }

    /// The limit that keeps a host from one more, beside what it has and what others have; `None`
    /// where it may. Asks all controllers, for Connect only.
    pub(crate) fn full(
        &self,
        limits: &Limits,
        kind: ControllerKind,
        host: (&str, [u8; 16]),
        from: IpAddr,
    ) -> Option<ControllerLimit> {
        let (mut of_host, mut of_address, mut of_kind) = (0, 0, 0);
        for other in self.by_id.values() {
            of_host += usize::from(other.host_id == host.1 && other.host_nqn == host.0);
            of_address += usize::from(other.peer.ip() == from);
            of_kind += usize::from(other.kind == ControllerKind::Discovery);
        }
        let discovers = kind == ControllerKind::Discovery;
        let full = [
            (
                of_host >= limits.controllers_per_host,
                ControllerLimit::Host,
            ),
            (
                of_address >= limits.controllers_per_address,
                ControllerLimit::Address,
            ),
            (
                discovers && of_kind >= limits.discovery_controllers,
                ControllerLimit::Discovery,
            ),
            (self.by_id.len() >= limits.controllers, ControllerLimit::All),
        ];
        full.into_iter()
            .find_map(|(full, limit)| full.then_some(limit))
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

/// Of whom there are as many controllers as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerLimit {
    /// Of a host.
    Host,
    /// Of hosts at an address.
    Address,
    /// Of the discovery service.
    Discovery,
    /// Of all.
    All,
}

impl ControllerLimit {
    /// Counts a Connect that was refused because of it.
    pub(crate) fn count(self, stats: &mut CoreStats) {
        stats.controllers_refused += 1;
        match self {
            Self::Host => stats.controllers_refused_per_host += 1,
            Self::Address => stats.controllers_refused_per_address += 1,
            Self::Discovery => stats.controllers_refused_discovery += 1,
            Self::All => {}
        }
    }
}

/// The kind of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerKind {
    /// It gives access to namespaces.
    Io,
    /// It serves the discovery log page.
    Discovery,
}

/// A connection's place in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
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
    /// Where its admin queue is.
    pub(crate) admin: Place,
    queues: Mutex<Queues>,
    /// What the rules say of its host, once they were asked.
    asked: Mutex<Option<Asked>>,
    attached: Mutex<Attached>,
    errors: Mutex<VecDeque<ErrorEntry>>,
    error_count: AtomicU64,
}

/// What rules say of a host in a subsystem.
#[derive(Clone, Debug)]
struct Asked {
    rules: Arc<Rules>,
    pass: Pass,
    whom: Arc<Whom>,
    scopes: Arc<Scopes>,
}

/// What of a controller is left in the target.
#[derive(Debug, Default)]
struct Attached {
    /// Connections that were its own, until nothing of them is in a device any more.
    connections: usize,
    /// Of them, those of which something may still change what a device holds.
    harmful: usize,
    /// End Controller commands that wait for the last harmful one, and their cores.
    waiting: Vec<(usize, Ticket)>,
}

/// The I/O queues of a controller.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Only an enabled controller takes I/O queues.
    pub(crate) ready: bool,
    /// The controller ends.
    pub(crate) dead: bool,
    /// How many were granted (Number of Queues).
    pub(crate) granted: u16,
    /// The host means the priority class that it connects a queue with.
    pub(crate) classes: bool,
    /// Where each is, by QID.
    pub(crate) places: BTreeMap<u16, Place>,
    /// What each was connected with, by QID; of queues that are in no place any more, too.
    pub(crate) terms: BTreeMap<u16, QueueTerms>,
}

/// Parameters of an I/O queue from its connection and its Connect command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueTerms {
    /// Entries of the queue.
    pub(crate) depth: u32,
    /// Header digests are in use.
    pub(crate) header_digest: bool,
    /// Data digests are in use.
    pub(crate) data_digest: bool,
}

impl SharedController {
    pub(crate) fn new(
        id: u16,
        kind: ControllerKind,
        subsystem: Option<Arc<Subsystem>>,
        host: (String, [u8; 16]),
        peer: SocketAddr,
        admin: Place,
        granted: u16,
    ) -> Self {
        let queues = Queues {
            ready: false,
            dead: false,
            granted,
            classes: false,
            places: BTreeMap::new(),
            terms: BTreeMap::new(),
        };
        Self {
            id,
            kind,
            subsystem,
            host_nqn: host.0,
            host_id: host.1,
            peer,
            admin,
            queues: Mutex::new(queues),
            asked: Mutex::default(),
            attached: Mutex::default(),
            errors: Mutex::default(),
            error_count: AtomicU64::new(0),
        }
    }

    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// What its host may do by these rules; they are asked once.
    pub(crate) fn pass(&self, rules: &Arc<Rules>) -> Pass {
        // The discovery service is everybody's.
        self.ask(rules).map_or(Pass::Everything, |asked| asked.pass)
    }

    /// The same for a queue of it, which may come from another address than the first one did.
    pub(crate) fn pass_from(&self, rules: &Arc<Rules>, from: IpAddr) -> Pass {
        if self.subsystem.is_some() && !rules.believe(&self.host_nqn, from) {
            return Pass::Refused;
        }
        self.pass(rules)
    }

    /// Which tenant its host is by these rules; they are asked once.
    pub(crate) fn whom(&self, rules: &Arc<Rules>) -> Arc<Whom> {
        self.ask(rules).map(|asked| asked.whom).unwrap_or_default()
    }

    /// Whose its host's commands are to barriers by these rules; they are asked once.
    pub(crate) fn scopes(&self, rules: &Arc<Rules>) -> Arc<Scopes> {
        self.ask(rules)
            .map(|asked| asked.scopes)
            .unwrap_or_default()
    }

    fn ask(&self, rules: &Arc<Rules>) -> Option<Asked> {
        let subsystem = self.subsystem.as_ref()?;
        let mut asked = lock(&self.asked);
        if let Some(asked) = asked.as_ref().filter(|a| Arc::ptr_eq(&a.rules, rules)) {
            return Some(asked.clone());
        }
        let whom = rules.whom(&self.host_nqn, &subsystem.nqn);
        *asked = Some(Asked {
            rules: Arc::clone(rules),
            pass: rules.pass(&self.host_nqn, self.peer.ip(), &subsystem.nqn),
            scopes: Arc::new(Scopes::of(&whom, &self.host_nqn, self.host_id)),
            whom: Arc::new(whom),
        });
        asked.clone()
    }

    /// A connection became one of its queues.
    pub(crate) fn attach(&self) {
        let mut attached = lock(&self.attached);
        attached.connections += 1;
        attached.harmful += 1;
    }

    /// Nothing of one of its connections can change anything any more. After the last one,
    /// whoever waits for that.
    pub(crate) fn disarm(&self) -> Vec<(usize, Ticket)> {
        let mut attached = lock(&self.attached);
        attached.harmful -= 1;
        if attached.harmful > 0 {
            return Vec::new();
        }
        std::mem::take(&mut attached.waiting)
    }

    /// Nothing of one of its connections is left; it was disarmed before. True for the last one.
    pub(crate) fn detach(&self) -> bool {
        let mut attached = lock(&self.attached);
        attached.connections -= 1;
        debug_assert!(attached.harmful <= attached.connections, "disarmed first");
        attached.connections == 0
    }

    /// Lets a command wait until nothing of the controller can change anything any more; false
    /// where nothing can.
    pub(crate) fn wait_for_end(&self, core: usize, asker: Ticket) -> bool {
        let mut attached = lock(&self.attached);
        let waits = attached.harmful > 0 && !mutation::active(Mutation::EndControllerEarly);
        if waits {
            attached.waiting.push((core, asker));
        }
        waits
    }

    /// The commands of this connection wait no more: it is closed.
    pub(crate) fn forget_waiting(&self, place: Place) {
        let mut attached = lock(&self.attached);
        let theirs =
            |core: usize, asker: Ticket| (core, asker.connection) == (place.core, place.connection);
        attached
            .waiting
            .retain(|&(core, asker)| !theirs(core, asker));
    }

    /// Appends to the error log; the oldest entry gives way.
    pub(crate) fn log_error(&self, mut entry: ErrorEntry) {
        entry.error_count = self.error_count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut errors = lock(&self.errors);
        if errors.len() == ERROR_LOG_ENTRIES {
            errors.pop_back();
        }
        errors.push_front(entry);
    }

    /// The error log, newest first.
    pub(crate) fn errors(&self) -> Vec<ErrorEntry> {
        lock(&self.errors).iter().copied().collect()
    }

    pub(crate) fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(id: u16) -> SharedController {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let host = ("nqn.host".to_owned(), [1; 16]);
        let connection = SlabKey {
            index: 0,
            generation: 0,
        };
        let admin = Place {
            core: 0,
            connection,
        };
        SharedController::new(id, ControllerKind::Discovery, None, host, peer, admin, 0)
    }

    #[test]
    fn identifiers_are_not_used_again_at_once_and_are_limited() {
        let mut controllers = Controllers::default();
        let first = controllers.insert(2, controller).expect("room").id;
        controllers.remove(first);
        let second = controllers.insert(2, controller).expect("room").id;
        assert_ne!(first, second);
        assert!(controllers.insert(2, controller).is_some());
        assert!(controllers.insert(2, controller).is_none());
        controllers.last_id = CNTLID_MAX;
        assert!(controllers.insert(9, controller).is_some_and(|c| c.id >= 1));
    }

    /// A core that was swamped for a moment kept queues of controllers that were gone, and went on
    /// after a shutdown.
    #[test]
    fn a_full_mailbox_loses_no_end_and_no_change() {
        #[derive(Debug)]
        struct Awake;
        impl reactor::Wake for Awake {
            fn wake(&self) {}
        }
        let target = crate::Target::new(Limits::default(), 1).expect("the defaults are in range");
        let mut mailbox = reactor::Mailbox::new(Arc::new(Awake));
        let shared = &target.shared;
        *shared.cores() = vec![mailbox.sender()];
        while shared.send(0, Note::Look).is_ok() {}
        let controller = controller(1);
        let Place { connection, .. } = controller.admin;
        shared.deliver(
            0,
            Note::EndQueue {
                connection,
                cntlid: 1,
            },
        );
        let change = shared.post(&[Step::AskRules]);
        assert_eq!(change.poll(), None, "it is on its way");
        target.shutdown();
        let notes = std::iter::from_fn(|| mailbox.pop());
        let kept: Vec<_> = notes.filter(|n| !matches!(n.0, Note::Look)).collect();
        assert!(
            matches!(
                kept[..],
                [
                    Message(Note::EndQueue { cntlid: 1, .. }),
                    Message(Note::Change { .. }),
                    Message(Note::Shutdown),
                ]
            ),
            "{kept:?}"
        );
    }

    #[test]
    fn seats_are_limited_over_all_cores_and_come_back() {
        let limits = Limits {
            connections: 2,
            ..Limits::default()
        };
        let shared = Shared::new(limits, 4);
        let first = shared.take_seat();
        let second = shared.take_seat();
        assert!(first.is_some() && second.is_some());
        assert!(shared.take_seat().is_none());
        drop(first);
        assert!(shared.take_seat().is_some());
    }

    #[test]
    fn who_waits_for_a_controller_is_told_after_the_last_connection_that_could_do_harm() {
        let controller = controller(1);
        let asker = |index| Ticket {
            connection: SlabKey {
                index,
                generation: 0,
            },
            slot: 0,
        };
        controller.attach();
        controller.attach();
        assert!(controller.disarm().is_empty());
        assert!(controller.wait_for_end(0, asker(1)) && controller.wait_for_end(3, asker(1)));
        assert!(controller.wait_for_end(3, asker(2)));
        // One of them closed meanwhile: nobody waits there any more.
        controller.forget_waiting(Place {
            core: 3,
            connection: asker(1).connection,
        });
        assert!(!controller.detach(), "another connection is left");
        assert_eq!(controller.disarm(), [(0, asker(1)), (3, asker(2))]);
        assert!(!controller.wait_for_end(0, asker(1)), "it is over");
        assert!(controller.detach(), "the identifier is free");
    }

    #[test]
    fn the_error_log_keeps_the_newest() {
        let controller = controller(1);
        for cid in 0..100 {
            controller.log_error(ErrorEntry {
                cid,
                ..ErrorEntry::default()
            });
        }
        let errors = controller.errors();
        assert_eq!(errors.len(), ERROR_LOG_ENTRIES);
        assert_eq!((errors[0].cid, errors[0].error_count), (99, 100));
        assert_eq!(controller.error_count(), 100);
    }
}
