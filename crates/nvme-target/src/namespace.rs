//! A namespace: a device with an identifier in a subsystem.
//!
//! [`Namespace`] is the part shared by all cores: its options and every core's counters.
//! [`CoreNamespace`] is one core's part: the channel, and the data that the I/O path needs without
//! a lock. Only its core accesses it.

use crate::change::ack::Pausing;
use crate::latency::{NamespaceLatency, SharedNamespaceLatency};
use crate::line::Line;
use crate::qos::core::Done;
use crate::qos::device::DeviceQos;
use crate::request::Ticket;
use crate::reservation::state::{Exclusion, Reservations};
use crate::stats::{NamespaceStats, PerCore, SharedNamespaceStats};
use base::Time;
use block::{
    BlockError, Channel, Completion, Device, DeviceError, Direct, Extents, Operation, Request,
    Submit, SubmitExtents,
};
use qos::PricedOperation;
use reactor::{Context, Driver, OpNamespace};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switch::{Class, PerClass};
use wire::nvme::Status;
use wire::nvme::ana::AnaState;

/// Options of a namespace.
#[derive(Clone, Debug)]
pub struct NamespaceOptions {
    /// Its identifier, 1 to [`NAMESPACES_MAX`](crate::limits::NAMESPACES_MAX).
    pub nsid: u32,
    /// Its device.
    pub device: Arc<dyn Device>,
    /// UUID by which hosts recognise the namespace. `[RFC 4122]`
    pub uuid: [u8; 16],
    /// NGUID; all zeroes: derived from the UUID.
    pub nguid: [u8; 16],
    /// EUI64; all zeroes: none.
    pub eui64: [u8; 8],
    /// Writes are refused even if the device allows them.
    pub read_only: bool,
    /// Its ANA group, 1 to [`ANA_GROUPS_MAX`](crate::limits::ANA_GROUPS_MAX).
    pub ana_group: u32,
    /// Sharing of the device among tenants; the same for all namespaces of a device. `None`: not
    /// scheduled.
    pub qos: Option<Arc<DeviceQos>>,
}

impl NamespaceOptions {
    /// Returns the options of a writable namespace without EUI64 and QoS, with the UUID as its
    /// NGUID.
    #[must_use]
    pub const fn new(nsid: u32, device: Arc<dyn Device>, uuid: [u8; 16]) -> Self {
        Self {
            nsid,
            device,
            uuid,
            nguid: [0; 16],
            eui64: [0; 8],
            read_only: false,
            ana_group: 1,
            qos: None,
        }
    }

    /// Returns the NGUID that hosts see: some hosts use no namespace without an NGUID or EUI64.
    pub(crate) fn announced_nguid(&self) -> [u8; 16] {
        if self.nguid == [0; 16] {
            self.uuid
        } else {
            self.nguid
        }
    }
}

/// Identity of a namespace's volume: a command for one namespace may go to another namespace with
/// the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    uuid: [u8; 16],
    nguid: [u8; 16],
    eui64: [u8; 8],
    /// Block size in bytes.
    block_bytes: u32,
}

/// The part of a namespace that all cores share.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) options: NamespaceOptions,
    /// Unique number of the namespace in its subsystem; a namespace that is added again gets its
    /// former number.
    pub(crate) incarnation: u32,
    /// State of its ANA group: an [`AnaState`].
    ana: AtomicU8,
    /// Registrations and the reservation; changed by their own thread only.
    reservations: Mutex<Reservations>,
    pub(crate) stats: PerCore<SharedNamespaceStats>,
    pub(crate) latency: PerCore<SharedNamespaceLatency>,
}

impl Namespace {
    /// Creates a namespace whose ANA group is in the state `ana`.
    pub(crate) fn new(options: NamespaceOptions, ana: AnaState, cores: usize) -> Self {
        Self {
            options,
            incarnation: 0,
            ana: AtomicU8::new(ana as u8),
            reservations: Mutex::default(),
            stats: PerCore::new(cores),
            latency: PerCore::new(cores),
        }
    }

    pub(crate) fn nsid(&self) -> u32 {
        self.options.nsid
    }

    /// Returns the state of its ANA group, which each core applies with its next
    /// [resume](crate::change::step::ChangeStep::Resume).
    pub(crate) fn ana(&self) -> AnaState {
        AnaState::parse(self.ana.load(Ordering::Acquire)).expect("only states are stored")
    }

    pub(crate) fn set_ana(&self, state: AnaState) {
        self.ana.store(state as u8, Ordering::Release);
    }

    /// Returns registrations and the reservation.
    pub(crate) fn reservations(&self) -> MutexGuard<'_, Reservations> {
        // It is replaced as a whole.
        let locked = self.reservations.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identity by which hosts recognise the volume.
    pub(crate) fn volume(&self) -> Volume {
        let NamespaceOptions {
            device,
            uuid,
            nguid,
            eui64,
            ..
        } = &self.options;
        Volume {
            uuid: *uuid,
            nguid: *nguid,
            eui64: *eui64,
            block_bytes: device.geometry().block_bytes,
        }
    }

    pub(crate) fn read_only(&self) -> bool {
        self.options.read_only || self.options.device.capabilities().read_only
    }

    /// Returns the counters summed over all cores.
    pub(crate) fn total(&self) -> NamespaceStats {
        let mut total = NamespaceStats::default();
        for core in self.stats.iter() {
            total.add(&core.load());
        }
        total
    }

    /// Returns the service times summed over all cores.
    pub(crate) fn total_latency(&self) -> NamespaceLatency {
        let mut total = NamespaceLatency::default();
        for core in self.latency.iter() {
            total.add(&core.load());
        }
        total
    }
}

/// A command for a device: a request or a command over extents.
pub(crate) trait DeviceCommand: Sized {
    /// The command once it is complete.
    type Done;

    /// Ends the command because its namespace was removed.
    fn gone(self) -> Self::Done;

    /// Returns the command for the backlog, because its channel has no room.
    fn waiting(self) -> Waiting;

    /// Hands the command to its channel.
    fn submit(self, channel: &mut dyn Channel, cx: &mut Context<'_>) -> Submit<Self, Self::Done>;
}

impl DeviceCommand for Request {
    type Done = Completion;

    fn gone(self) -> Completion {
        self.ended(Err(BlockError::Gone))
    }

    fn waiting(self) -> Waiting {
        Waiting::Request(self)
    }

    fn submit(self, channel: &mut dyn Channel, cx: &mut Context<'_>) -> Submit {
        channel.submit(self, cx)
    }
}

impl DeviceCommand for Extents {
    type Done = Self;

    fn gone(self) -> Self {
        self.ended(Err(BlockError::Gone))
    }

    fn waiting(self) -> Waiting {
        Waiting::Extents(self)
    }

    fn submit(self, channel: &mut dyn Channel, cx: &mut Context<'_>) -> SubmitExtents {
        channel.submit_extents(self, cx)
    }
}

/// A command for which a channel had no room.
#[derive(Debug)]
pub(crate) enum Waiting {
    Request(Request),
    Extents(Extents),
}

impl Waiting {
    pub(crate) const fn tag(&self) -> u64 {
        match self {
            Self::Request(request) => request.tag,
            Self::Extents(command) => command.tag,
        }
    }
}

/// Requests for which a channel had no room: in order of arrival per class, and the classes in the
/// order of service.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    lines: PerClass<Line<Waiting>>,
    /// Number of the last request.
    last: u32,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(|(_, line)| line.is_empty())
    }

    /// Returns true if a waiting request precedes a new request of this class.
    pub(crate) fn is_before(&self, class: Class) -> bool {
        let mut waiting = self.lines.iter().filter(|(_, line)| !line.is_empty());
        waiting.any(|(other, _)| other <= class)
    }

    /// Adds a waiting request. Returns its number.
    pub(crate) fn push(&mut self, class: Class, request: Waiting) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.lines[class].push(self.last, request);
        self.last
    }

    /// Removes the next request; returns its class, its number and the request.
    pub(crate) fn pop(&mut self) -> Option<(Class, u32, Waiting)> {
        let mut lines = self.lines.iter_mut();
        lines.find_map(|(class, line)| line.pop().map(|(number, request)| (class, number, request)))
    }

    /// Puts the request back as the next one, because there was again no room for it.
    pub(crate) fn give_back(&mut self, class: Class, number: u32, request: Waiting) {
        self.lines[class].give_back(number, request);
    }

    /// Removes every request for which `wanted` returns true.
    pub(crate) fn take_all(&mut self, wanted: impl Fn(&Waiting) -> bool, taken: &mut Vec<Waiting>) {
        for (_, line) in self.lines.iter_mut() {
            line.take_all(&wanted, |request| taken.push(request));
        }
    }

    /// Removes the request with this number if `wanted` returns true for it. Returns whether it was
    /// removed.
    pub(crate) fn remove(&mut self, number: u32, wanted: impl Fn(&Waiting) -> bool) -> bool {
        let mut lines = self.lines.iter_mut();
        lines.any(|(_, line)| line.remove(number, &wanted).is_some())
    }
}

/// The gate that commands pass; closed during a change of the namespace.
#[derive(Debug)]
pub(crate) enum Gate {
    /// Commands pass.
    Open,
    /// New commands wait; commands in flight and all requests in the channel finish first.
    Pausing {
        /// Acknowledges the pause when dropped, after the last of them has finished.
        debt: Pausing,
    },
    /// New commands wait, and none is in flight.
    Paused,
}

/// One core's access to a namespace.
#[derive(Debug)]
pub(crate) struct CoreNamespace {
    pub(crate) shared: Arc<Namespace>,
    pub(crate) channel: Box<dyn Channel>,
    /// The channel's memory, if the device is plain memory.
    pub(crate) direct: Option<Direct>,
    pub(crate) blocks: u64,
    /// Binary logarithm of the block size in bytes.
    pub(crate) block_shift: u32,
    pub(crate) device_transfer_bytes: u32,
    /// Most extents of one command to the device; 0 for none.
    pub(crate) extents_max: u32,
    pub(crate) read_only: bool,
    /// Deallocating is cheaper for the device than writing zeroes.
    pub(crate) thin: bool,
    /// The core's token scheduler for the device; `None` if commands cost no tokens.
    pub(crate) scheduler: Option<u32>,
    /// The incarnation of the [`Namespace`].
    pub(crate) incarnation: u32,
    /// State of its ANA group on this core.
    pub(crate) ana: AnaState,
    /// The reservation that commands are checked against on this core.
    pub(crate) exclusion: Option<Exclusion>,
    pub(crate) gate: Gate,
    /// The block that only a fused pair may change.
    pub(crate) fence: Option<u64>,
    /// Commands between their arrival and their end.
    pub(crate) in_flight: u32,
    /// Requests in the channel.
    pub(crate) in_channel: u32,
    /// Commands that arrived while the gate was not open, in order.
    pub(crate) waiting: VecDeque<Ticket>,
    /// Requests for which the channel had no room.
    pub(crate) backlog: Backlog,
    /// Requests were submitted since the last kick.
    pub(crate) gathered: bool,
    /// The namespace is in the core's list of active namespaces.
    pub(crate) active: bool,
    pub(crate) stats: NamespaceStats,
    pub(crate) latency: NamespaceLatency,
    /// The counters as last published.
    published: NamespaceStats,
}

impl CoreNamespace {
    /// Opens the namespace's device on this core.
    pub(crate) fn open(
        shared: Arc<Namespace>,
        driver: &mut dyn Driver,
    ) -> Result<Self, DeviceError> {
        let device = &shared.options.device;
        let channel = device.open(driver)?;
        let (geometry, capabilities) = (device.geometry(), device.capabilities());
        if !geometry.block_bytes.is_power_of_two() || geometry.block_bytes < 512 {
            return Err(DeviceError::Invalid(format!(
                "a block size of {} bytes is not supported by NVMe",
                geometry.block_bytes
            )));
        }
        let exclusion = shared.reservations().exclusion();
        Ok(Self {
            direct: channel.direct(),
            channel,
            blocks: geometry.blocks,
            block_shift: geometry.block_bytes.trailing_zeros(),
            device_transfer_bytes: capabilities.max_transfer_bytes,
            extents_max: capabilities.extents_max,
            read_only: shared.read_only(),
            thin: capabilities.thin,
            scheduler: None,
            incarnation: shared.incarnation,
            ana: shared.ana(),
            exclusion,
            gate: Gate::Open,
            fence: None,
            in_flight: 0,
            in_channel: 0,
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
            gathered: false,
            active: false,
            stats: NamespaceStats::default(),
            latency: NamespaceLatency::default(),
            published: NamespaceStats::default(),
            shared,
        })
    }

    /// Opens a new channel after the device was resized; returns the old one to be closed.
    pub(crate) fn reopen(
        &mut self,
        driver: &mut dyn Driver,
    ) -> Result<Box<dyn Channel>, DeviceError> {
        let fresh = Self::open(Arc::clone(&self.shared), driver)?;
        self.direct = fresh.direct;
        self.blocks = fresh.blocks;
        Ok(std::mem::replace(&mut self.channel, fresh.channel))
    }

    /// Counts a completed command and its service time.
    pub(crate) fn count(&mut self, done: &Done) {
        let (success, bytes, took) = (done.success, done.bytes, done.took);
        let stats = &mut self.stats;
        match done.operation {
            PricedOperation::Read if !success => stats.read_errors += 1,
            PricedOperation::Write if !success => stats.write_errors += 1,
            PricedOperation::Flush if !success => stats.flush_errors += 1,
            _ if !success => stats.other_errors += 1,
            PricedOperation::Read => {
                stats.reads += 1;
                stats.read_bytes += bytes;
            }
            PricedOperation::Write => {
                stats.writes += 1;
                stats.written_bytes += bytes;
            }
            PricedOperation::Flush => stats.flushes += 1,
            _ => stats.others += 1,
        }
        let latency = &mut self.latency;
        match done.operation {
            PricedOperation::Read => latency.reads.count(took),
            PricedOperation::Write => latency.writes.count(took),
            PricedOperation::Flush => latency.flushes.count(took),
            _ => latency.others.count(took),
        }
    }

    /// Publishes the counters of core `index` if they changed.
    pub(crate) fn publish(&mut self, index: usize) {
        // Each answered command changes one of these counters.
        if self.published == self.stats {
            return;
        }
        self.published = self.stats;
        self.shared.stats.of(index).publish(&self.stats);
        self.shared.latency.of(index).publish(&self.latency);
    }

    /// Ends a command in flight; this may complete a pause that waited for it.
    pub(crate) fn end_flight(&mut self) {
        assert!(self.in_flight > 0, "a command in flight is counted");
        self.in_flight -= 1;
        self.settle();
    }

    /// Returns true if the device has a volatile write cache to flush.
    pub(crate) fn has_cache(&self) -> bool {
        let device = &self.shared.options.device;
        device.capabilities().volatile_cache
    }

    /// Refuses I/O commands in an ANA state that does not execute them; the host may send them by
    /// another path, or later. `[NVMe Base 2.0 §8.1.3]`
    #[inline]
    pub(crate) fn check_access(&self) -> Result<(), Status> {
        match self.ana {
            AnaState::Optimized | AnaState::NonOptimized => Ok(()),
            AnaState::Inaccessible => Err(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Err(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Err(Status::ANA_TRANSITION),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.gate, Gate::Open)
    }

    /// Returns true if `blocks` blocks from `lba` on include the fenced block.
    #[inline]
    pub(crate) fn is_fenced(&self, lba: u64, blocks: u32) -> bool {
        let inside = |fence: u64| fence.wrapping_sub(lba) < u64::from(blocks);
        self.fence.is_some_and(inside)
    }

    /// Returns true if no command is in flight and no request is in the channel or its backlog. A
    /// Flush of all namespaces is in flight in none of them; only its requests count.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.in_channel == 0 && self.backlog.is_empty()
    }

    /// Returns true if the channel has no work until a request is submitted or one of its
    /// operations completes.
    pub(crate) fn is_idle(&self) -> bool {
        let empty = self.in_channel == 0 && self.backlog.is_empty() && !self.gathered;
        empty && (self.direct.is_some() || self.channel.deadline() == Time::NEVER)
    }

    /// Completes a pause if everything that it waited for has finished.
    pub(crate) fn settle(&mut self) {
        if matches!(self.gate, Gate::Pausing { .. }) && self.is_quiet() {
            self.gate = Gate::Paused;
        }
    }

    /// Returns true if `blocks` blocks from `lba` on lie within the namespace.
    #[inline]
    pub(crate) fn contains(&self, lba: u64, blocks: u64) -> bool {
        lba.checked_add(blocks)
            .is_some_and(|end| end <= self.blocks)
    }
}

/// One core's part of a subsystem.
#[derive(Debug)]
pub(crate) struct CoreSubsystem {
    /// The namespaces, by namespace identifier minus 1.
    pub(crate) namespaces: Vec<Option<CoreNamespace>>,
    /// The removal that waits for the subsystem's last connection.
    pub(crate) removing: Option<Pausing>,
}

/// Result of submitting a command to a namespace.
#[derive(Debug)]
pub(crate) enum Submitted<T> {
    /// The command is complete.
    Done(T),
    /// The device has it.
    Queued,
    /// The device had no room: the command waits in the namespace, under this number.
    Waits(u32),
}

/// The namespaces of a core.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// By the index that all cores use.
    pub(crate) subsystems: Vec<Option<CoreSubsystem>>,
    /// Namespaces with work in flight, by subsystem and identifier; a turn visits only these. Some
    /// of them may have been removed.
    pub(crate) active: Vec<(u32, u32)>,
    /// Closing channels; each stays until the driver has none of its operations.
    pub(crate) closing: Vec<Box<dyn Channel>>,
}

impl Namespaces {
    pub(crate) fn new() -> Self {
        Self {
            subsystems: Vec::new(),
            active: Vec::with_capacity(64),
            closing: Vec::new(),
        }
    }

    /// Returns the namespaces of a subsystem, by identifier minus 1; an empty slice for a removed
    /// subsystem.
    pub(crate) fn of(&self, subsystem: u32) -> &[Option<CoreNamespace>] {
        let subsystem = self.subsystems.get(subsystem as usize);
        let subsystem = subsystem.and_then(Option::as_ref);
        subsystem.map_or(&[], |subsystem| &subsystem.namespaces)
    }

    /// Returns a namespace of a subsystem, if the core has it.
    #[inline]
    pub(crate) fn get(&self, subsystem: u32, nsid: u32) -> Option<&CoreNamespace> {
        let subsystem = self.subsystems.get(subsystem as usize)?.as_ref()?;
        let index = (nsid as usize).wrapping_sub(1);
        subsystem.namespaces.get(index)?.as_ref()
    }

    /// Returns a namespace of a subsystem mutably, if the core has it.
    #[inline]
    pub(crate) fn get_mut(&mut self, subsystem: u32, nsid: u32) -> Option<&mut CoreNamespace> {
        let subsystem = self.subsystems.get_mut(subsystem as usize)?.as_mut()?;
        let index = (nsid as usize).wrapping_sub(1);
        subsystem.namespaces.get_mut(index)?.as_mut()
    }

    /// Returns the namespace whose channel owns an operation namespace.
    pub(crate) fn owner(&self, op_namespace: OpNamespace) -> Option<(u32, u32)> {
        let subsystems = (0u32..).zip(&self.subsystems);
        let mut all = subsystems.flat_map(|(subsystem, slot)| {
            let namespaces = slot.iter().flat_map(|s| s.namespaces.iter().flatten());
            namespaces.map(move |namespace| (subsystem, namespace))
        });
        all.find(|(_, namespace)| namespace.channel.owns(op_namespace))
            .map(|(subsystem, namespace)| (subsystem, namespace.shared.nsid()))
    }

    /// Returns an iterator over the namespaces of the core.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut CoreNamespace> {
        let subsystems = self.subsystems.iter_mut().flatten();
        subsystems.flat_map(|subsystem| subsystem.namespaces.iter_mut().flatten())
    }

    /// Marks a namespace as active: its channel may have work.
    #[inline]
    pub(crate) fn activate(&mut self, subsystem: u32, nsid: u32) {
        let Some(namespace) = self.get_mut(subsystem, nsid) else {
            return;
        };
        if !std::mem::replace(&mut namespace.active, true) {
            self.active.push((subsystem, nsid));
        }
    }

    /// Ends a command in flight in a namespace.
    pub(crate) fn end_flight(&mut self, subsystem: u32, nsid: u32) {
        if let Some(namespace) = self.get_mut(subsystem, nsid) {
            namespace.end_flight();
        }
    }

    /// Hands a command to a namespace's device, in the order of `class`. A command for which the
    /// device has no room waits in the namespace.
    pub(crate) fn submit<C: DeviceCommand>(
        &mut self,
        subsystem: u32,
        nsid: u32,
        class: Class,
        command: C,
        cx: &mut Context<'_>,
    ) -> Submitted<C::Done> {
        let slot = self.subsystems.get_mut(subsystem as usize);
        let namespaces = slot.and_then(Option::as_mut).map(|s| &mut s.namespaces);
        let index = (nsid as usize).wrapping_sub(1);
        let Some(Some(namespace)) = namespaces.and_then(|all| all.get_mut(index)) else {
            return Submitted::Done(command.gone());
        };
        if !std::mem::replace(&mut namespace.active, true) {
            self.active.push((subsystem, nsid));
        }
        if namespace.backlog.is_before(class) {
            return Submitted::Waits(namespace.backlog.push(class, command.waiting()));
        }
        match command.submit(&mut *namespace.channel, cx) {
            Submit::Done(done) => Submitted::Done(done),
            Submit::Queued => {
                namespace.in_channel += 1;
                namespace.gathered = true;
                Submitted::Queued
            }
            Submit::Busy(command) => {
                namespace.gathered = true;
                Submitted::Waits(namespace.backlog.push(class, command.waiting()))
            }
        }
    }

    /// Removes a request from the backlog by its number. Returns false if the device has it
    /// already.
    pub(crate) fn withdraw(
        &mut self,
        (subsystem, nsid): (u32, u32),
        number: u32,
        ticket: Ticket,
    ) -> bool {
        let Some(namespace) = self.get_mut(subsystem, nsid) else {
            return false;
        };
        let tag = ticket.tag();
        let whole = |waiting: &Waiting| match waiting {
            Waiting::Request(request) => {
                let part = matches!(request.operation, Operation::Deallocate | Operation::Flush);
                request.tag == tag && !part
            }
            Waiting::Extents(command) => command.tag == tag,
        };
        namespace.backlog.remove(number, whole)
    }

    /// Closes a channel; it is dropped when the driver has none of its operations.
    pub(crate) fn close(&mut self, mut channel: Box<dyn Channel>, cx: &mut Context<'_>) {
        channel.close(cx);
        self.closing.push(channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::Lba;
    use block::Operation;

    #[test]
    fn what_must_not_wait_is_next_and_each_class_is_in_order() {
        let request = |tag| {
            Waiting::Request(Request {
                tag,
                operation: Operation::Read,
                lba: Lba(0),
                blocks: 1,
                data: None,
            })
        };
        let mut backlog = Backlog::default();
        let first = backlog.push(Class::Throughput, request(1));
        assert!(!backlog.is_before(Class::Latency) && backlog.is_before(Class::Throughput));
        backlog.push(Class::Throughput, request(2));
        backlog.push(Class::Latency, request(3));
        assert!(backlog.is_before(Class::Latency));
        let (class, number, next) = backlog.pop().expect("three wait");
        assert_eq!((class, next.tag()), (Class::Latency, 3));
        backlog.give_back(class, number, next);
        assert!(!backlog.remove(first, |request| request.tag() == 2));
        assert!(backlog.remove(first, |request| request.tag() == 1));
        assert!(!backlog.remove(first, |request| request.tag() == 1));
        let rest: Vec<_> = std::iter::from_fn(|| backlog.pop())
            .map(|(_, _, request)| request.tag())
            .collect();
        assert_eq!(rest, [3, 2]);
        assert!(backlog.is_empty());
    }
}
