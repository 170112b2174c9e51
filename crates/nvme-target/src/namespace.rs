//! A namespace: a device, under an identifier, in a subsystem.
//!
//! [`Namespace`] is the shared part: what a control plane made, and every core's counters.
//! [`CoreNamespace`] is one core's way in: the channel, and what the I/O path needs to know without a
//! lock. Only its core touches it.

use crate::change::ack::Pausing;
use crate::latency::{NamespaceLatency, SharedNamespaceLatency};
use crate::line::Line;
use crate::qos::core::Done;
use crate::qos::device::DeviceQos;
use crate::request::Ticket;
use crate::stats::{NamespaceStats, PerCore, SharedNamespaceStats};
use base::Time;
use block::{
    BlockError, Channel, Completion, Device, DeviceError, Direct, Extents, Operation, Request,
    Submit, SubmitExtents,
};
use qos::PricedOperation;
use reactor::{Context, Driver, OpNamespace};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::{Class, PerClass};

/// Options of a namespace.
#[derive(Clone, Debug)]
pub struct NamespaceOptions {
    /// Its identifier, 1 to [`NAMESPACES_MAX`](crate::limits::NAMESPACES_MAX).
    pub nsid: u32,
    /// Its device.
    pub device: Arc<dyn Device>,
    /// UUID, which hosts recognise the namespace by. `[RFC 4122]`
    pub uuid: [u8; 16],
    /// NGUID; zeroes for the UUID's bytes.
    pub nguid: [u8; 16],
    /// EUI64, or zeroes for none.
    pub eui64: [u8; 8],
    /// Writes are refused, even if the device allows them.
    pub read_only: bool,
    /// Sharing of its device among tenants; all namespaces over one device have the same. A namespace
    /// without is not scheduled.
    pub qos: Option<Arc<DeviceQos>>,
}

impl NamespaceOptions {
    /// The options of a namespace without EUI64, and with the UUID as its NGUID, which may be written and is not
    /// scheduled.
    #[must_use]
    pub const fn new(nsid: u32, device: Arc<dyn Device>, uuid: [u8; 16]) -> Self {
        Self {
            nsid,
            device,
            uuid,
            nguid: [0; 16],
            eui64: [0; 8],
            read_only: false,
            qos: None,
        }
    }

    /// Returns the NGUID that hosts see: some use no namespace without one, or without an EUI64.
    pub(crate) fn announced_nguid(&self) -> [u8; 16] {
        if self.nguid == [0; 16] {
            self.uuid
        } else {
            self.nguid
        }
    }
}

/// Identity of a namespace's volume: commands to one may go to another one with the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    uuid: [u8; 16],
    nguid: [u8; 16],
    eui64: [u8; 8],
    /// Bytes of a block.
    block_bytes: u32,
}

/// A namespace as all cores share it.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) options: NamespaceOptions,
    /// Number in its subsystem, of no other namespace; one that comes again has that from before.
    pub(crate) incarnation: u32,
    pub(crate) stats: PerCore<SharedNamespaceStats>,
    pub(crate) latency: PerCore<SharedNamespaceLatency>,
}

impl Namespace {
    pub(crate) fn new(options: NamespaceOptions, cores: usize) -> Self {
        Self {
            options,
            incarnation: 0,
            stats: PerCore::new(cores),
            latency: PerCore::new(cores),
        }
    }

    pub(crate) fn nsid(&self) -> u32 {
        self.options.nsid
    }

    /// Returns what hosts recognise its volume by.
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

    /// Returns the counters of all cores together.
    pub(crate) fn total(&self) -> NamespaceStats {
        let mut total = NamespaceStats::default();
        for core in self.stats.iter() {
            total.add(&core.load());
        }
        total
    }

    /// Returns the service times of all cores together.
    pub(crate) fn total_latency(&self) -> NamespaceLatency {
        let mut total = NamespaceLatency::default();
        for core in self.latency.iter() {
            total.add(&core.load());
        }
        total
    }
}

/// A command for a device: a request, or one over extents.
pub(crate) trait DeviceCommand: Sized {
    /// The command once it is done.
    type Done;

    /// Ends the command for want of its namespace.
    fn gone(self) -> Self::Done;

    /// Returns the command as one that its channel had no room for.
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

/// A command that a channel had no room for.
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

/// Requests that a channel had no room for: those of each class in order, and the classes in the
/// order of service.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    lines: PerClass<Line<Waiting>>,
    /// The number of the request that came last.
    last: u32,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(|(_, line)| line.is_empty())
    }

    /// Returns true if a new request of this class comes after one that waits.
    pub(crate) fn is_before(&self, class: Class) -> bool {
        let mut waiting = self.lines.iter().filter(|(_, line)| !line.is_empty());
        waiting.any(|(other, _)| other <= class)
    }

    /// Lets a request wait. Returns its number.
    pub(crate) fn push(&mut self, class: Class, request: Waiting) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.lines[class].push(self.last, request);
        self.last
    }

    /// The next request, its class, and its number.
    pub(crate) fn pop(&mut self) -> Option<(Class, u32, Waiting)> {
        let mut lines = self.lines.iter_mut();
        lines.find_map(|(class, line)| line.pop().map(|(number, request)| (class, number, request)))
    }

    /// There was no room for it again: it is still the next one.
    pub(crate) fn give_back(&mut self, class: Class, number: u32, request: Waiting) {
        self.lines[class].give_back(number, request);
    }

    /// Takes out every request that is `wanted`.
    pub(crate) fn take_all(&mut self, wanted: impl Fn(&Waiting) -> bool, taken: &mut Vec<Waiting>) {
        for (_, line) in self.lines.iter_mut() {
            line.take_all(&wanted, |request| taken.push(request));
        }
    }

    /// Takes out the request with this number, if it is `wanted`. Returns whether it was there.
    pub(crate) fn remove(&mut self, number: u32, wanted: impl Fn(&Waiting) -> bool) -> bool {
        let mut lines = self.lines.iter_mut();
        lines.any(|(_, line)| line.remove(number, &wanted).is_some())
    }
}

/// The gate that commands pass; closed while the namespace changes.
#[derive(Debug)]
pub(crate) enum Gate {
    /// Commands pass.
    Open,
    /// New ones wait; those in flight, and every request in the channel, finish first.
    Pausing {
        /// Acknowledged, by being dropped, when the last of them has.
        debt: Pausing,
    },
    /// New ones wait, and none is in flight.
    Paused,
}

/// One core's way into a namespace.
#[derive(Debug)]
pub(crate) struct CoreNamespace {
    pub(crate) shared: Arc<Namespace>,
    pub(crate) channel: Box<dyn Channel>,
    /// The channel's memory, where it is nothing else.
    pub(crate) direct: Option<Direct>,
    pub(crate) blocks: u64,
    /// A block is 2 to this power bytes.
    pub(crate) block_shift: u32,
    pub(crate) device_transfer_bytes: u32,
    /// Most extents of one command to the device; 0 for none.
    pub(crate) extents_max: u32,
    pub(crate) read_only: bool,
    /// Deallocating costs the device less than writing zeroes does.
    pub(crate) thin: bool,
    /// The core's token scheduler for its device, where its commands are paid for.
    pub(crate) scheduler: Option<u32>,
    /// That of [`Namespace`].
    pub(crate) incarnation: u32,
    pub(crate) gate: Gate,
    /// Commands between their arrival and their end.
    pub(crate) in_flight: u32,
    /// Requests in the channel.
    pub(crate) in_channel: u32,
    /// Commands that came while the gate was not open, in order.
    pub(crate) waiting: VecDeque<Ticket>,
    /// Requests that the channel had no room for.
    pub(crate) backlog: Backlog,
    /// Requests were submitted since the last kick.
    pub(crate) gathered: bool,
    /// It is among those that the core moves along.
    pub(crate) active: bool,
    pub(crate) stats: NamespaceStats,
    pub(crate) latency: NamespaceLatency,
    /// Counters as published last.
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
            gate: Gate::Open,
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

    /// Opens the channel anew, after the device was resized; hands the old one out to be closed.
    pub(crate) fn reopen(
        &mut self,
        driver: &mut dyn Driver,
    ) -> Result<Box<dyn Channel>, DeviceError> {
        let fresh = Self::open(Arc::clone(&self.shared), driver)?;
        self.direct = fresh.direct;
        self.blocks = fresh.blocks;
        Ok(std::mem::replace(&mut self.channel, fresh.channel))
    }

    /// Counts a command that ended, and the time that it took.
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

    /// Publishes what core `index` counted, if there is anything new.
    pub(crate) fn publish(&mut self, index: usize) {
        // Each command that is answered changes one of these counters.
        if self.published == self.stats {
            return;
        }
        self.published = self.stats;
        self.shared.stats.of(index).publish(&self.stats);
        self.shared.latency.of(index).publish(&self.latency);
    }

    /// A command has ended; a pause that waited for it may be complete.
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

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.gate, Gate::Open)
    }

    /// Returns true while no command is in flight and no request is in the channel or waits for
    /// room in it. A Flush of all namespaces is in flight in none of them, only its requests are.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.in_channel == 0 && self.backlog.is_empty()
    }

    /// Returns true while the channel has nothing to do until a request is submitted, or an operation
    /// of it completes.
    pub(crate) fn is_idle(&self) -> bool {
        let empty = self.in_channel == 0 && self.backlog.is_empty() && !self.gathered;
        empty && (self.direct.is_some() || self.channel.deadline() == Time::NEVER)
    }

    /// Completes a pause that waited for what is finished now.
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
    /// By namespace identifier, less one.
    pub(crate) namespaces: Vec<Option<CoreNamespace>>,
    /// The removal that waits for the subsystem's last connection.
    pub(crate) removing: Option<Pausing>,
}

/// Outcome of a command that was handed to a namespace.
#[derive(Debug)]
pub(crate) enum Submitted<T> {
    /// It is done.
    Done(T),
    /// The device has it.
    Queued,
    /// The device had no space for it: it waits in the namespace, under this number.
    Waits(u32),
}

/// The namespaces of a core.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// By the index that all cores use.
    pub(crate) subsystems: Vec<Option<CoreSubsystem>>,
    /// Namespaces that have something under way, by subsystem and identifier: a turn looks at these
    /// alone. Some of them may be gone.
    pub(crate) active: Vec<(u32, u32)>,
    /// Channels that end, until nothing of them is left in the driver.
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

    /// Returns the namespaces of a subsystem, by identifier less one; none of one that is gone.
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

    /// The same, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, subsystem: u32, nsid: u32) -> Option<&mut CoreNamespace> {
        let subsystem = self.subsystems.get_mut(subsystem as usize)?.as_mut()?;
        let index = (nsid as usize).wrapping_sub(1);
        subsystem.namespaces.get_mut(index)?.as_mut()
    }

    /// Returns the namespace with the channel that owns an operation namespace.
    pub(crate) fn owner(&self, op_namespace: OpNamespace) -> Option<(u32, u32)> {
        let subsystems = (0u32..).zip(&self.subsystems);
        let mut all = subsystems.flat_map(|(subsystem, slot)| {
            let namespaces = slot.iter().flat_map(|s| s.namespaces.iter().flatten());
            namespaces.map(move |namespace| (subsystem, namespace))
        });
        all.find(|(_, namespace)| namespace.channel.owns(op_namespace))
            .map(|(subsystem, namespace)| (subsystem, namespace.shared.nsid()))
    }

    /// Returns every namespace of the core.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut CoreNamespace> {
        let subsystems = self.subsystems.iter_mut().flatten();
        subsystems.flat_map(|subsystem| subsystem.namespaces.iter_mut().flatten())
    }

    /// A namespace's channel may have something to do.
    #[inline]
    pub(crate) fn activate(&mut self, subsystem: u32, nsid: u32) {
        let Some(namespace) = self.get_mut(subsystem, nsid) else {
            return;
        };
        if !std::mem::replace(&mut namespace.active, true) {
            self.active.push((subsystem, nsid));
        }
    }

    /// A command of a namespace has ended.
    pub(crate) fn end_flight(&mut self, subsystem: u32, nsid: u32) {
        if let Some(namespace) = self.get_mut(subsystem, nsid) {
            namespace.end_flight();
        }
    }

    /// Hands a command to a namespace's device, in the order of `class`. One for which the device
    /// has no space waits in the namespace.
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

    /// Takes back a request for which its device had no space when it came, under its number. Returns
    /// false if it has it.
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

    /// Ends a channel; it is dropped when nothing of it is left in the driver.
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
