//! State shared by the parts of one association, which may run on different cores.
//!
//! One [`Controller`](crate::Controller) drives the admin queue; any number of channels have I/O
//! queues. They agree through an *epoch*: a number that counts associations, together with the
//! phase. A channel reads it once a turn (one load of a cache line that rarely changes) and
//! follows: it opens its queues when a new association is live, and closes them when that is lost.
//! The part that notices a loss first moves the epoch and wakes all cores. The I/O path takes no
//! lock here.

mod addresses;
mod authentication;
#[cfg(test)]
mod tests;

use crate::error::ConnectionError;
use crate::info::{ControllerInfo, DiscoveryEntry, NamespaceInfo, Parameters, VolumeId};
use crate::limits::IO_QUEUES_MAX;
use crate::options::{ConnectOptions, ReplayPolicy};
pub use crate::recovery::epoch::Phase;
use crate::recovery::epoch::{Epoch, SharedEpoch};
use crate::recovery::fences::{ControllerName, FenceSnapshot, Fences};
use crate::recovery::rest::Rest;
use crate::recovery::span::Span;
use crate::recovery::unflushed::Unflushed;
use addresses::Addresses;
use base::mutation::{self, Mutation};
use block::{CacheLife, Geometry};
use reactor::Wake;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A channel's request to abort one of its commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbortRequest {
    pub(crate) generation: u64,
    pub(crate) queue_id: u16,
    pub(crate) cid: u16,
}

/// Properties of the controller as last reported, behind one lock. Not used by the I/O path.
#[derive(Debug, Default)]
struct Knowledge {
    parameters: Parameters,
    /// The last controller had written its caches back before its namespaces became inaccessible.
    written_back: bool,
    controller: Option<ControllerInfo>,
    namespaces: BTreeMap<u32, NamespaceInfo>,
    states: BTreeMap<u32, Arc<NamespaceState>>,
    unusable: BTreeMap<u32, &'static str>,
    discovery: Vec<DiscoveryEntry>,
    error: Option<ConnectionError>,
    addresses: Addresses,
    fence_snapshot: FenceSnapshot,
    /// Controllers left by an ended process that may not have ended yet; true for those of this
    /// host.
    inherited: Vec<(ControllerName, bool)>,
    /// Controllers that may execute commands of this host.
    controllers: Vec<ControllerName>,
    watches: Vec<Arc<dyn ControllersWatch>>,
    aborts: Vec<AbortRequest>,
    /// The last request to authenticate again that was answered, and why it failed.
    authenticated: (u64, Option<ConnectionError>),
    queue_ids: QueueIds,
    wakers: Vec<(u64, Arc<dyn Wake>)>,
    /// Rests of the channels, by the key of their waker.
    rests: BTreeMap<u64, Arc<Rest>>,
    next_waker: u64,
}

/// The shared state of one controller's associations.
#[derive(Debug)]
pub struct Association {
    options: ConnectOptions,
    epoch: SharedEpoch,
    /// Version of the fences. It also counts changes of the namespaces that were removed or could
    /// not be identified.
    fence_version: AtomicU64,
    /// Generation of the last association after which the controller may have lost its write cache;
    /// 0 for none.
    caches_lost: AtomicU64,
    /// There are aborts to send.
    aborts: AtomicBool,
    /// A thread resolves the name of the controller.
    is_resolving: AtomicBool,
    /// The loss timeout has passed, and the host still tries to reconnect.
    overdue: AtomicBool,
    /// The owner closed the association.
    closing: AtomicBool,
    /// Number of requests to authenticate again.
    authentications: AtomicU64,
    knowledge: Mutex<Knowledge>,
    changed: Condvar,
}

impl Association {
    pub(crate) fn new(options: ConnectOptions) -> Arc<Self> {
        let knowledge = Knowledge {
            addresses: Addresses::new(&options),
            ..Knowledge::default()
        };
        Arc::new(Self {
            options,
            is_resolving: AtomicBool::new(false),
            epoch: SharedEpoch::new(),
            fence_version: AtomicU64::new(0),
            caches_lost: AtomicU64::new(0),
            aborts: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            authentications: AtomicU64::new(0),
            knowledge: Mutex::new(knowledge),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Knowledge> {
        // Every change under the lock is a single assignment, so poisoning does no harm.
        self.knowledge
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The options of the connections.
    #[must_use]
    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// The address of the current connection, or of the last attempt.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.lock().addresses.current()
    }

    /// Takes the address of the next attempt.
    pub(crate) fn next_address(&self) -> SocketAddr {
        self.lock().addresses.next()
    }

    /// Returns true if the current round has addresses left to try.
    pub(crate) fn has_further_address(&self) -> bool {
        self.lock().addresses.has_further()
    }

    pub(crate) fn has_several_addresses(&self) -> bool {
        self.lock().addresses.are_several()
    }

    /// Ends the round of addresses after a successful connection.
    pub(crate) fn end_round(&self) {
        self.lock().addresses.end_round();
    }

    /// Starts a new round at the first address. A separate thread resolves the name again, because
    /// that may take long.
    pub(crate) fn begin_round(self: &Arc<Self>) {
        self.lock().addresses.begin_round();
        let Some((name, port)) = self.options.name.clone() else {
            return;
        };
        if self.is_resolving.swap(true, Ordering::SeqCst) {
            return;
        }
        let association = Arc::clone(self);
        let resolve = move || {
            // Without an answer the old addresses are tried again.
            if let Ok(found) = reactor::address::resolve(&name, port) {
                association.lock().addresses.replace(found);
            }
            association.is_resolving.store(false, Ordering::SeqCst);
        };
        let thread = std::thread::Builder::new().name("switchyard-names".to_owned());
        if thread.spawn(resolve).is_err() {
            self.is_resolving.store(false, Ordering::SeqCst);
        }
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.epoch().phase
    }

    /// Returns the number of associations that have been live.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.epoch().generation
    }

    /// Returns how often each phase was entered, with the phase's name.
    pub fn phases_entered(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let names = Phase::ALL.iter().map(|phase| phase.name());
        names.zip(self.epoch.entered())
    }

    /// Returns the error that ended the last connection, or prevented it.
    #[must_use]
    pub fn last_error(&self) -> Option<ConnectionError> {
        self.lock().error.clone()
    }

    /// The Identify data of the controller, once it was identified.
    #[must_use]
    pub fn controller(&self) -> Option<ControllerInfo> {
        self.lock().controller.clone()
    }

    /// The active namespaces in order, as last identified.
    #[must_use]
    pub fn namespaces(&self) -> Vec<NamespaceInfo> {
        self.lock().namespaces.values().cloned().collect()
    }

    /// The discovery log of a discovery controller, as last read.
    #[must_use]
    pub fn discovery_log(&self) -> Vec<DiscoveryEntry> {
        self.lock().discovery.clone()
    }

    /// Returns why an existing namespace cannot be used.
    pub(crate) fn unusable(&self, nsid: u32) -> Option<&'static str> {
        self.lock().unusable.get(&nsid).copied()
    }

    pub(crate) fn namespace_state(&self, nsid: u32) -> Option<Arc<NamespaceState>> {
        self.lock().states.get(&nsid).cloned()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    pub(crate) fn parameters(&self) -> Parameters {
        self.lock().parameters
    }

    /// Sets the epoch, and wakes all cores.
    pub(crate) fn set_epoch(&self, epoch: Epoch) {
        self.epoch.set(epoch);
        self.moved(epoch);
    }

    /// Reports the loss of the association of this generation. Only the first report has an effect.
    pub(crate) fn report_lost(&self, generation: u64, error: Option<ConnectionError>) {
        if self.epoch.lose(generation) {
            if error.is_some() {
                self.lock().error = error;
            }
            let phase = Phase::Recovering;
            self.moved(Epoch { generation, phase });
        }
    }

    /// Wakes all cores after a change of the epoch.
    fn moved(&self, Epoch { generation, phase }: Epoch) {
        tracing::trace!(generation, phase = phase.name(), "association");
        self.announce();
    }

    pub(crate) fn set_error(&self, error: Option<ConnectionError>) {
        if error.is_some() {
            self.lock().error = error;
        }
    }

    /// Replaces the fences. Channels read them before they send anything else.
    pub(crate) fn set_fences(&self, fences: &Fences) {
        let mut knowledge = self.lock();
        knowledge.fence_snapshot.update(fences);
        self.fence_version.fetch_add(1, Ordering::SeqCst);
        drop(knowledge);
        self.announce();
    }

    /// Fences the blocks of a write that was lost with the association of this generation. Called
    /// before the write is reported, so a submitter that then writes the blocks again, on any
    /// channel, finds them fenced.
    pub(crate) fn fence_blocks(&self, generation: u64, span: Span) {
        let live = Epoch {
            generation,
            phase: Phase::Live,
        };
        let mut knowledge = self.lock();
        let is_lost = self.epoch() != live;
        knowledge.fence_snapshot.close(generation, span, is_lost);
        self.fence_version.fetch_add(1, Ordering::SeqCst);
    }

    /// Holds newer writes of these blocks back on every channel, because an older write was given
    /// up and the controller has not answered it.
    pub(crate) fn hold_blocks(&self, generation: u64, span: Span) {
        self.lock().fence_snapshot.hold(generation, span);
        self.fence_version.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a [hold](Self::hold_blocks).
    pub(crate) fn let_go_blocks(&self, generation: u64, span: Span) {
        self.lock().fence_snapshot.let_go(generation, span);
        self.fence_version.fetch_add(1, Ordering::SeqCst);
        self.announce();
    }

    /// Raises a fence for each of these controllers, which an ended process left; `is_ours` if they
    /// belong to this host. Called before the association is [connected](crate::Controller::new).
    pub(crate) fn inherit(&self, controllers: &[ControllerName], is_ours: bool) {
        let inherited = controllers.iter().map(|&controller| (controller, is_ours));
        self.lock().inherited = inherited.collect();
    }

    pub(crate) fn take_inherited(&self) -> Vec<(ControllerName, bool)> {
        std::mem::take(&mut self.lock().inherited)
    }

    /// Waits until no fence stands, the association is gone, or `limit` has passed. Returns true if
    /// no fence stands.
    pub(crate) fn wait_unfenced(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut knowledge = self.lock();
        while knowledge.fence_snapshot.stands() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.phase() == Phase::Gone {
                return false;
            }
            let waited = self.changed.wait_timeout(knowledge, left);
            knowledge = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Registers `watch`, which receives the controllers of this association now and before each
    /// change.
    pub fn watch_controllers(&self, watch: Arc<dyn ControllersWatch>) {
        let mut knowledge = self.lock();
        watch.note(&knowledge.controllers);
        knowledge.watches.push(watch);
    }

    /// Records that these controllers may execute commands of this host from now on.
    pub(crate) fn note_controllers(&self, controllers: Vec<ControllerName>) {
        let mut knowledge = self.lock();
        for watch in &knowledge.watches {
            watch.note(&controllers);
        }
        knowledge.controllers = controllers;
    }

    /// Returns the version of the fences: one load of a cache line that rarely changes.
    #[inline]
    pub(crate) fn fence_version(&self) -> u64 {
        self.fence_version.load(Ordering::SeqCst)
    }

    /// Returns the version of the fences, and the fences that channels must respect.
    pub(crate) fn fence_snapshot(&self) -> (u64, FenceSnapshot) {
        let knowledge = self.lock();
        (self.fence_version(), knowledge.fence_snapshot.clone())
    }

    pub(crate) fn announce(&self) {
        let knowledge = self.lock();
        for (_, waker) in &knowledge.wakers {
            waker.wake();
        }
        drop(knowledge);
        self.changed.notify_all();
    }

    /// Registers a core to be woken when the epoch moves.
    pub(crate) fn add_waker(&self, waker: Arc<dyn Wake>) -> u64 {
        let mut knowledge = self.lock();
        let id = knowledge.next_waker;
        knowledge.next_waker += 1;
        knowledge.wakers.push((id, waker));
        id
    }

    pub(crate) fn remove_waker(&self, id: u64) {
        let mut knowledge = self.lock();
        knowledge.wakers.retain(|(other, _)| *other != id);
        knowledge.rests.remove(&id);
    }

    /// Sets whether requests fail because the loss timeout has passed although the host still tries
    /// to reconnect.
    pub(crate) fn set_overdue(&self, overdue: bool) {
        self.overdue.store(overdue, Ordering::SeqCst);
        if overdue {
            self.announce();
        }
    }

    /// Returns true if requests fail because the loss timeout has passed although the host still
    /// tries to reconnect.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::SeqCst)
    }

    /// Requests an orderly shutdown of the association.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.announce();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Blocks the calling thread until the phase is neither connecting nor recovering, or `limit`
    /// has passed. For threads that do not run a core.
    pub(crate) fn wait_settled(&self, limit: Duration) -> Phase {
        let end = Instant::now() + limit;
        let mut knowledge = self.lock();
        loop {
            let phase = self.phase();
            let left = end.saturating_duration_since(Instant::now());
            if !phase.is_making() || left.is_zero() {
                return phase;
            }
            let waited = self.changed.wait_timeout(knowledge, left);
            knowledge = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes a free I/O queue identifier among the first `granted`, preferring those above `after`.
    pub(crate) fn take_queue(&self, granted: u16, after: u16) -> Option<u16> {
        self.lock().queue_ids.take(granted, after)
    }

    /// Returns the number of I/O queues that are granted and not in use.
    #[must_use]
    pub fn free_queues(&self) -> usize {
        let knowledge = self.lock();
        knowledge.queue_ids.free(knowledge.parameters.io_queues)
    }

    /// Releases an identifier.
    pub(crate) fn release_queue(&self, queue_id: u16) {
        self.lock().queue_ids.release(queue_id);
    }

    pub(crate) fn request_abort(&self, request: AbortRequest) {
        self.lock().aborts.push(request);
        self.aborts.store(true, Ordering::SeqCst);
        self.announce();
    }

    /// Puts back aborts that cannot be sent yet.
    pub(crate) fn keep_aborts(&self, mut requests: Vec<AbortRequest>) {
        if !requests.is_empty() {
            self.lock().aborts.append(&mut requests);
            self.aborts.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn take_aborts(&self) -> Vec<AbortRequest> {
        if !self.aborts.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().aborts)
    }

    /// Stores the properties of a controller that was identified again.
    pub(crate) fn learn_controller(&self, info: ControllerInfo, parameters: Parameters) {
        let mut knowledge = self.lock();
        let known = knowledge.controller.is_some();
        let kept = std::mem::take(&mut knowledge.written_back);
        if known
            && !kept
            && !self.caches_live(knowledge.parameters.cache_life, parameters.cache_life)
        {
            // Stored first: a channel that processes an older answer from now on reads it.
            let lost = self.epoch().generation;
            self.caches_lost.store(lost, Ordering::SeqCst);
            for state in knowledge.states.values() {
                state.unflushed.lose();
            }
        }
        knowledge.controller = Some(info);
        knowledge.parameters = parameters;
    }

    /// Records that acknowledged writes are on the medium, wherever the next association is.
    pub(crate) fn note_written_back(&self) {
        self.lock().written_back = true;
    }

    /// Stores a new number for the epoch of the write caches. The live controller has lost nothing.
    pub(crate) fn learn_cache_life(&self, life: u64) {
        self.lock().parameters.cache_life = life;
    }

    /// Returns true if acknowledged, unflushed writes must still be there after a reconnect.
    fn caches_live(&self, before: u64, now: u64) -> bool {
        before == now && (now != 0 || self.is_trusted())
            || mutation::active(Mutation::CacheLossUnnoticed)
    }

    /// Returns true if the user trusts the target to report every cache loss.
    fn is_trusted(&self) -> bool {
        self.options.replay == ReplayPolicy::Immediate
    }

    /// Returns the last reported epoch of the controller's write caches.
    pub(crate) fn cache_life(&self) -> CacheLife {
        let parameters = self.parameters();
        match parameters.cache_life {
            _ if !parameters.features.volatile_cache => CacheLife::Machine,
            0 if !self.is_trusted() => CacheLife::Unknown,
            life => CacheLife::Of(life),
        }
    }

    /// Returns the generation of the last association of which unflushed writes may be lost.
    #[inline]
    pub(crate) fn caches_lost(&self) -> u64 {
        self.caches_lost.load(Ordering::SeqCst)
    }

    /// Stores the namespaces that were identified again. Missing ones are removed, and channels are
    /// woken to fail their requests. Requests for namespaces that could not be identified wait
    /// until they are, because their NSIDs may name other volumes now.
    pub(crate) fn learn_namespaces(&self, namespaces: NamespacesFound) {
        let NamespacesFound {
            found,
            mut unusable,
            mut unknown,
            only,
        } = namespaces;
        let is_left = |nsid: &u32| only.as_ref().is_some_and(|only| !only.contains(nsid));
        let mut guard = self.lock();
        let knowledge = &mut *guard;
        let controller = knowledge.controller.as_ref();
        let serial = controller.map_or_else(String::new, |info| info.serial.clone());
        let mut found: BTreeMap<_, _> = found.into_iter().map(|info| (info.nsid, info)).collect();
        let mut replaced = None;
        for (nsid, state) in &knowledge.states {
            if is_left(nsid) || unknown.contains(nsid) {
                continue;
            }
            let info = found.get(nsid);
            if info.is_some_and(|info| !state.is_volume(info, &serial)) {
                replaced = Some(ConnectionError::OtherVolume { nsid: *nsid });
            }
            state.update(info, &serial);
        }
        knowledge.error = replaced.or_else(|| knowledge.error.take());
        // A namespace that was removed, or has another block size or volume now, gets a new state.
        // Holders of the old state find it gone.
        let before = knowledge.states.len();
        knowledge.states.retain(|_, state| !state.is_gone());
        let some_went = knowledge.states.len() < before;
        for (nsid, info) in &found {
            let new = || Arc::new(NamespaceState::new(info, &serial));
            knowledge.states.entry(*nsid).or_insert_with(new);
        }
        // No request waits for a namespace that was never known.
        for nsid in unknown.extract_if(.., |nsid| !knowledge.states.contains_key(nsid)) {
            unusable.insert(nsid, NOT_IDENTIFIED);
        }
        let stays = |nsid: &u32| is_left(nsid) || unknown.contains(nsid);
        let before = std::mem::take(&mut knowledge.namespaces).into_iter();
        found.extend(before.filter(|(nsid, _)| stays(nsid)));
        knowledge.namespaces = found;
        let before = std::mem::take(&mut knowledge.unusable).into_iter();
        unusable.extend(before.filter(|(nsid, _)| is_left(nsid)));
        knowledge.unusable = unusable;
        let changes = knowledge.fence_snapshot.suspend(unknown, is_left) || some_went;
        if changes {
            self.fence_version.fetch_add(1, Ordering::SeqCst);
        }
        drop(guard);
        if changes {
            self.announce();
        }
    }

    pub(crate) fn learn_discovery(&self, entries: Vec<DiscoveryEntry>) {
        self.lock().discovery = entries;
    }
}

impl Association {
    /// Registers a channel, as [`add_waker`](Self::add_waker). Returns its key and its rest.
    pub(crate) fn add_channel(&self, waker: Arc<dyn Wake>) -> (u64, Arc<Rest>) {
        let (id, rest) = (self.add_waker(waker), Arc::new(Rest::new()));
        self.lock().rests.insert(id, Arc::clone(&rest));
        (id, rest)
    }

    /// Counts an I/O connection that is about to be opened. Returns false if the epoch has moved.
    pub(crate) fn enter_open(&self, epoch: Epoch) -> bool {
        if self.epoch.enter(epoch) {
            return true;
        }
        self.leave_open(1);
        false
    }

    /// Subtracts `count` I/O connections that were closed or retired.
    pub(crate) fn leave_open(&self, count: u32) {
        if count > 0 && self.epoch.leave(count) {
            self.announce();
        }
    }

    /// Retires the connections of the channels at rest, because the association is lost. Returns
    /// the number of I/O connections that are still open.
    pub(crate) fn open_connections(&self) -> u32 {
        for rest in self.lock().rests.values() {
            let open = rest.retire();
            if open > 0 {
                // Only this caller waits for that.
                let _ = self.epoch.leave(open);
            }
        }
        self.epoch.open()
    }
}

/// Receives the controllers of an association.
pub trait ControllersWatch: Send + Sync + std::fmt::Debug {
    /// `controllers` are all controllers that may execute commands of the association from now on:
    /// the current one, and those of lost connections that may not have ended. Called before
    /// anything is sent to the current one. Must not block, nor use the association.
    fn note(&self, controllers: &[ControllerName]);
}

/// Namespaces as the controller identified them.
#[derive(Debug, Default)]
pub(crate) struct NamespacesFound {
    /// Namespaces that can be used.
    pub(crate) found: Vec<NamespaceInfo>,
    /// Namespaces that cannot be used, each with the reason.
    pub(crate) unusable: BTreeMap<u32, &'static str>,
    /// Namespaces that the controller could not identify.
    pub(crate) unknown: BTreeSet<u32>,
    /// The requested namespaces; `None` for all.
    pub(crate) only: Option<BTreeSet<u32>>,
}

/// Why a namespace that the controller could not identify cannot be opened.
const NOT_IDENTIFIED: &str = "Identify fails at present; retry later, or see the target's log";

/// The queue identifiers in use.
#[derive(Debug, Default)]
struct QueueIds {
    /// Element `n` is true while identifier `n + 1` is in use.
    used: Vec<bool>,
}

impl QueueIds {
    /// Takes the lowest free identifier above `after` among `1..=granted`, or else the lowest free
    /// one.
    fn take(&mut self, granted: u16, after: u16) -> Option<u16> {
        let granted = usize::from(granted.min(IO_QUEUES_MAX));
        let mut in_turn = (after.into()..granted).chain(0..granted);
        let free = in_turn.find(|&i| !self.used.get(i).copied().unwrap_or(false))?;
        if self.used.len() <= free {
            self.used.resize(free + 1, false);
        }
        self.used[free] = true;
        u16::try_from(free + 1).ok()
    }

    /// Releases an identifier.
    fn release(&mut self, queue_id: u16) {
        let index = usize::from(queue_id) - 1;
        if let Some(used) = self.used.get_mut(index) {
            *used = false;
        }
    }

    /// Returns the number of free identifiers among `1..=granted`.
    fn free(&self, granted: u16) -> usize {
        let granted = usize::from(granted);
        let used = self.used.iter().take(granted);
        granted - used.filter(|&&used| used).count()
    }
}

/// A namespace as last identified.
#[derive(Debug)]
pub(crate) struct NamespaceState {
    pub(crate) nsid: u32,
    pub(crate) block_bytes: u32,
    volume: VolumeId,
    /// Size in blocks; 0 once the namespace was removed, or its NSID names another volume.
    blocks: AtomicU64,
    read_only: AtomicBool,
    pub(crate) unflushed: Unflushed,
}

impl NamespaceState {
    /// The state of a namespace of the controller with this serial number.
    pub(crate) fn new(info: &NamespaceInfo, serial: &str) -> Self {
        Self {
            nsid: info.nsid,
            block_bytes: info.geometry.block_bytes,
            volume: info.volume(serial),
            blocks: AtomicU64::new(info.geometry.blocks),
            read_only: AtomicBool::new(info.read_only),
            unflushed: Unflushed::new(),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the namespace was removed. It does not come back under this state.
    pub(crate) fn is_gone(&self) -> bool {
        self.geometry().is_gone()
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Returns true if the identifiers are those of the volume that this state belongs to.
    fn is_volume(&self, info: &NamespaceInfo, serial: &str) -> bool {
        info.volume(serial).is_same(&self.volume) || mutation::active(Mutation::OtherVolumeAccepted)
    }

    /// Stores the size and the write protection of the namespace as last identified. `None`,
    /// another volume or another block size marks it as gone.
    fn update(&self, info: Option<&NamespaceInfo>, serial: &str) {
        let same = |info: &&NamespaceInfo| {
            self.is_volume(info, serial) && info.geometry.block_bytes == self.block_bytes
        };
        let info = info.filter(same);
        let blocks = info.map_or(0, |info| info.geometry.blocks);
        self.blocks.store(blocks, Ordering::Relaxed);
        if let Some(info) = info {
            self.read_only.store(info.read_only, Ordering::Relaxed);
        }
    }
}
