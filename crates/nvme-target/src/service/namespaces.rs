//! The namespaces of a core: its channels to their devices, and the requests in them.

use crate::change::ack::Pausing;
use crate::namespace::{CoreNamespace, DeviceCommand, Waiting};
use crate::request::Ticket;
use block::{Channel, Operation, Submit};
use reactor::{Context, OpNamespace};
use switch::Class;

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

    /// A command of a namespace is through; a pause that waited for it may be complete.
    pub(crate) fn end_flight(&mut self, subsystem: u32, nsid: u32) {
        if let Some(namespace) = self.get_mut(subsystem, nsid) {
            assert!(namespace.in_flight > 0, "a command in flight is counted");
            namespace.in_flight -= 1;
            namespace.settle();
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
        self.activate(subsystem, nsid);
        let Some(namespace) = self.get_mut(subsystem, nsid) else {
            return Submitted::Done(command.gone());
        };
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
