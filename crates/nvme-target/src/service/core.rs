//! What a core owns besides its connections: its way into every namespace, its send lists, and
//! the queues of those who wait.
//!
//! The functions of a connection get this beside the connection, so that both can be changed at
//! once. Nothing here is shared with another core but what [`Shared`] says.

use crate::barrier::core::CoreBarriers;
use crate::change::ack::Pausing;
use crate::controller::registry::{Place, SharedController};
use crate::limits::{Limits, PUBLISH_INTERVAL};
use crate::log_budget::LogBudget;
use crate::message::Note;
use crate::namespace::CoreNamespace;
use crate::qos::core::CoreTokens;
use crate::request::Ticket;
use crate::shared::Shared;
use crate::shares::{Accounts, Parties};
use crate::stats::CoreStats;
use crate::switch::core::CoreSwitch;
use crate::switch::work::Work;
use base::{SlabKey, Time, TimerQueue};
use block::{Channel, Completion, Request, Submit};
use reactor::{BufferPool, Context, OpNamespace, SendList};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::{Class, PerClass};

/// One core's part of a subsystem.
#[derive(Debug)]
pub(crate) struct CoreSubsystem {
    /// By namespace identifier, less one.
    pub(crate) namespaces: Vec<Option<CoreNamespace>>,
    /// The subsystem goes as soon as its last connection has.
    pub(crate) removing: Option<Pausing>,
}

/// Something that concerns other connections than the one at hand; done at the end of the turn.
#[derive(Debug)]
pub(crate) enum Action {
    /// A controller ends, with all its queues.
    EndController(Arc<SharedController>),
    /// Another controller of the same host ends, and the command that asked for it waits.
    EndOther {
        controller: Arc<SharedController>,
        asker: Ticket,
    },
    /// The I/O queues of a controller end; it was disabled.
    EndQueues(Arc<SharedController>),
    /// Abort a command of another queue, and tell the Abort command that waits.
    Abort {
        queue: Place,
        cid: u16,
        asker: Ticket,
    },
}

/// What a core owns besides its connections.
#[derive(Debug)]
pub(crate) struct CoreState {
    pub(crate) index: usize,
    pub(crate) op_namespace: OpNamespace,
    pub(crate) limits: Limits,
    pub(crate) shared: Arc<Shared>,
    pub(crate) switch: CoreSwitch,
    pub(crate) tokens: CoreTokens,
    pub(crate) barriers: CoreBarriers,
    /// Nobody is left to be protected from anybody: commands need no tokens.
    pub(crate) unscheduled: bool,
    pub(crate) subsystems: Vec<Option<CoreSubsystem>>,
    /// The namespaces that have something under way, by subsystem and identifier: a turn looks at
    /// these alone. May name some that are gone.
    pub(crate) active: Vec<(u32, u32)>,
    /// Channels that end, until nothing of them is left in the driver.
    pub(crate) closing_channels: Vec<Box<dyn Channel>>,
    pub(crate) lists: ListPool,
    pub(crate) accounts: Accounts,
    /// Commands whose connection or host holds its share of the buffers, in order.
    pub(crate) share_waiters: VecDeque<Ticket>,
    /// Of those that waited for buffers, some went on in this turn: others may, too.
    pub(crate) went_on: bool,
    /// Commands that wait for a buffer, in order.
    pub(crate) buffer_waiters: VecDeque<Ticket>,
    /// Connections that hold back their input until a buffer is free, in order.
    pub(crate) input_waiters: VecDeque<SlabKey>,
    /// Bytes of input held back.
    pub(crate) stashed_bytes: usize,
    /// I/O queues of each class, as far as their hosts named one.
    pub(crate) classes: PerClass<usize>,
    pub(crate) actions: Vec<Action>,
    /// Commands that may go on: their namespace opened, or their tenant is another.
    pub(crate) released: VecDeque<Ticket>,
    /// Connections to close once their commands are through.
    pub(crate) draining: Vec<SlabKey>,
    pub(crate) timers: TimerQueue<(u32, u8)>,
    pub(crate) stats: CoreStats,
    /// Counters changed since they were published.
    pub(crate) unpublished: bool,
    pub(crate) publish_at: Time,
    pub(crate) fresh_connections: usize,
    pub(crate) trimming: Trimming,
    /// I/O queues that were connected in this turn, and have no core yet that serves them.
    pub(crate) undealt: Vec<SlabKey>,
    /// How much of its time the core has something to do.
    pub(crate) work: Work,
    /// What may still be logged of what peers do.
    pub(crate) log_budget: LogBudget,
}

impl CoreState {
    pub(crate) fn new(index: usize, op_namespace: OpNamespace, shared: Arc<Shared>) -> Self {
        let limits = shared.limits.clone();
        let knobs = shared.knobs().unwrap_or_default();
        Self {
            index,
            op_namespace,
            lists: ListPool::new(limits.send_lists),
            switch: CoreSwitch::new(knobs, limits.connections),
            shared,
            tokens: CoreTokens::new(index),
            barriers: CoreBarriers::new(limits.barrier_held_bytes),
            unscheduled: false,
            subsystems: Vec::new(),
            active: Vec::with_capacity(64),
            closing_channels: Vec::new(),
            accounts: Accounts::default(),
            share_waiters: VecDeque::with_capacity(1024),
            went_on: false,
            buffer_waiters: VecDeque::with_capacity(1024),
            input_waiters: VecDeque::with_capacity(64),
            stashed_bytes: 0,
            classes: PerClass::default(),
            actions: Vec::with_capacity(64),
            released: VecDeque::new(),
            draining: Vec::new(),
            timers: TimerQueue::with_capacity(1024),
            stats: CoreStats::default(),
            unpublished: false,
            publish_at: Time::ZERO,
            fresh_connections: 0,
            trimming: Trimming::default(),
            undealt: Vec::new(),
            work: Work::default(),
            log_budget: LogBudget::default(),
            limits,
        }
    }

    /// A namespace of a subsystem, if this core has it.
    #[inline]
    pub(crate) fn namespace(&mut self, subsystem: u32, nsid: u32) -> Option<&mut CoreNamespace> {
        find(&mut self.subsystems, subsystem, nsid)
    }

    /// The same, to look at.
    pub(crate) fn namespace_ref(&self, subsystem: u32, nsid: u32) -> Option<&CoreNamespace> {
        let subsystem = self.subsystems.get(subsystem as usize)?.as_ref()?;
        let index = (nsid as usize).wrapping_sub(1);
        subsystem.namespaces.get(index)?.as_ref()
    }

    /// The namespaces of a subsystem whose commands are paid for, and the place of each one's
    /// scheduler. Control path: allocates.
    pub(crate) fn scheduled(&self, subsystem: u32) -> Vec<(u32, u32)> {
        let subsystem = self.subsystems.get(subsystem as usize);
        let subsystem = subsystem.and_then(Option::as_ref);
        let namespaces = subsystem.into_iter().flat_map(|s| &s.namespaces).flatten();
        namespaces
            .filter_map(|namespace| Some((namespace.shared.nsid(), namespace.scheduler?)))
            .collect()
    }

    /// Every namespace of the core.
    pub(crate) fn namespaces_mut(&mut self) -> impl Iterator<Item = &mut CoreNamespace> {
        let subsystems = self.subsystems.iter_mut().flatten();
        subsystems.flat_map(|subsystem| subsystem.namespaces.iter_mut().flatten())
    }

    /// A namespace's channel may have something to do.
    #[inline]
    pub(crate) fn activate(&mut self, subsystem: u32, nsid: u32) {
        let Some(namespace) = self.namespace(subsystem, nsid) else {
            return;
        };
        if !std::mem::replace(&mut namespace.active, true) {
            self.active.push((subsystem, nsid));
        }
    }

    /// A command of a namespace is through; a pause that waited for it may be complete.
    pub(crate) fn uncount(&mut self, subsystem: u32, nsid: u32) {
        if let Some(namespace) = self.namespace(subsystem, nsid) {
            namespace.in_flight -= 1;
            namespace.settle();
        }
    }

    /// Nothing of a connection of a controller can change anything any more; who waits for the
    /// last one is told.
    pub(crate) fn disarm(&self, controller: &SharedController) {
        for (core, asker) in controller.disarm() {
            // To this core, too: the answer must not come before this turn's other work.
            self.shared.deliver(core, Note::Ended { asker });
        }
    }

    /// Nothing is left of a connection of a controller; after the last one, another controller may
    /// have its identifier.
    pub(crate) fn detach(&self, controller: &SharedController) {
        if controller.detach() {
            self.shared.controllers().remove(controller.id);
        }
    }

    /// Hands a request of a queue of `class` (none for control) to a namespace's device. A completion comes back if it is done already; a
    /// request that the device has no room for waits in the namespace.
    pub(crate) fn submit(
        &mut self,
        subsystem: u32,
        nsid: u32,
        class: Option<Class>,
        request: Request,
        cx: &mut Context<'_>,
    ) -> Option<Completion> {
        let class = self.switch.order_of(class);
        let Self {
            subsystems,
            active,
            stats,
            ..
        } = self;
        let Some(namespace) = find(subsystems, subsystem, nsid) else {
            let result = Err(block::BlockError::Gone);
            return Some(Completion {
                tag: request.tag,
                result,
                data: request.data,
            });
        };
        if !std::mem::replace(&mut namespace.active, true) {
            active.push((subsystem, nsid));
        }
        if namespace.busy.is_before(class) {
            namespace.busy.push(class, request);
            stats.device_waits += 1;
            return None;
        }
        match namespace.channel.submit(request, cx) {
            Submit::Done(completion) => Some(completion),
            Submit::Queued => {
                namespace.in_channel += 1;
                namespace.gathered = true;
                None
            }
            Submit::Busy(request) => {
                namespace.gathered = true;
                namespace.busy.push(class, request);
                stats.device_waits += 1;
                None
            }
        }
    }

    /// Ends a channel; it is dropped when nothing of it is left in the driver.
    pub(crate) fn close_channel(&mut self, mut channel: Box<dyn Channel>, cx: &mut Context<'_>) {
        channel.close(cx);
        self.closing_channels.push(channel);
    }

    /// Notes that counters changed.
    #[inline]
    pub(crate) fn touch(&mut self) {
        self.unpublished = true;
    }

    /// Publishes all counters, now and then.
    pub(crate) fn publish(&mut self, cx: &Context<'_>, connections: usize) {
        let now = cx.now;
        if !self.unpublished || now < self.publish_at {
            return;
        }
        self.unpublished = false;
        self.publish_at = now + PUBLISH_INTERVAL;
        self.publish_usage(cx.driver.buffers());
        let driver = cx.driver.stats();
        self.stats.connections = connections as u64;
        self.stats.latency_queues = self.classes[Class::Latency] as u64;
        self.stats.throughput_queues = self.classes[Class::Throughput] as u64;
        self.stats.work_ns = self.work.busy().0;
        self.stats.loops = driver.turns;
        self.stats.sleeps = driver.sleeps;
        self.stats.receives = driver.receives;
        self.stats.received_bytes = driver.received_bytes;
        self.stats.sends = driver.sends;
        self.stats.sent_bytes = driver.sent_bytes;
        self.shared.core_stats.of(self.index).publish(&self.stats);
        if !self
            .shared
            .switch_stats
            .of(self.index)
            .publish(&self.switch.stats(&driver.service))
        {
            // Somebody is reading it: next time.
            self.unpublished = true;
        }
        let index = self.index;
        for namespace in self.namespaces_mut() {
            namespace.publish(index);
        }
        self.unpublished |= self.tokens.publish();
    }

    /// How much is in use of what the core has a limited amount of.
    fn publish_usage(&mut self, buffers: &BufferPool) {
        let (all, used) = buffers.bytes();
        self.stats.buffer_bytes = all as u64;
        self.stats.buffer_bytes_used = used as u64;
        self.stats.send_lists_used = self.lists.used() as u64;
        self.stats.stashed_bytes = self.stashed_bytes as u64;
    }
}

/// A namespace of a subsystem, among those of a core.
#[inline]
fn find(
    subsystems: &mut [Option<CoreSubsystem>],
    subsystem: u32,
    nsid: u32,
) -> Option<&mut CoreNamespace> {
    let subsystem = subsystems.get_mut(subsystem as usize)?.as_mut()?;
    let index = (nsid as usize).wrapping_sub(1);
    subsystem.namespaces.get_mut(index)?.as_mut()
}

/// When queues give back memory.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    /// When they are asked next.
    pub(crate) next: Time,
    /// Commands that had come when they were asked.
    pub(crate) commands: u64,
}

/// Send lists of a core, made when first needed and kept.
#[derive(Debug)]
pub(crate) struct ListPool {
    #[expect(
        clippy::vec_box,
        reason = "operations own their list by the box, which is kept"
    )]
    free: Vec<Box<SendList>>,
    made: usize,
    max: usize,
    /// Connections that wait for one, in order, each with its class.
    pub(crate) waiting: VecDeque<(Option<Class>, SlabKey)>,
    /// One came back since the last turn.
    pub(crate) returned: bool,
}

impl ListPool {
    fn new(max: usize) -> Self {
        Self {
            free: Vec::with_capacity(max),
            made: 0,
            max,
            waiting: VecDeque::new(),
            returned: false,
        }
    }

    /// An empty list for a connection of these; `None` when all that they may have are in use.
    #[inline]
    pub(crate) fn take(&mut self, parties: &Parties, limits: &Limits) -> Option<Box<SendList>> {
        let left = self.free.len() + self.max - self.made;
        if left == 0 || !parties.may_take_list(left, self.max, limits) {
            return None;
        }
        parties.take_lists(1);
        if let Some(list) = self.free.pop() {
            return Some(list);
        }
        self.made += 1;
        Some(Box::new(SendList::new()))
    }

    /// Lists in use.
    pub(crate) fn used(&self) -> usize {
        self.made - self.free.len()
    }

    /// A list comes back from a connection of these.
    #[inline]
    pub(crate) fn give_back(&mut self, mut list: Box<SendList>, parties: &Parties) {
        parties.give_back_lists(1);
        list.clear();
        self.free.push(list);
        self.returned = true;
    }

    /// Whether some that wait for a list are to try again.
    pub(crate) fn has_to_look(&self) -> bool {
        self.returned && !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Purpose;

    #[test]
    fn lists_are_limited_and_come_back() {
        let (mut pool, limits) = (ListPool::new(1), Limits::default());
        let mut accounts = Accounts::default();
        let host = ("a", [1; 16]);
        let data = accounts.parties(Purpose::Data, host, None, None);
        let control = accounts.parties(Purpose::Control, host, None, None);
        let list = pool.take(&data, &limits).expect("the first");
        assert!(pool.take(&control, &limits).is_none());
        pool.give_back(list, &data);
        assert!(pool.take(&accounts.anyone(), &limits).is_some());
    }

    #[test]
    fn nobody_takes_the_lists_that_are_for_others() {
        let (mut pool, limits) = (ListPool::new(64), Limits::default());
        let mut accounts = Accounts::default();
        let all = |pool: &mut ListPool, parties: &Parties| {
            let lists = std::iter::from_fn(|| pool.take(parties, &limits));
            lists.collect::<Vec<_>>()
        };
        let anyone = accounts.anyone();
        let anyones = all(&mut pool, &anyone);
        let mut queues = Vec::new();
        for host in ["a", "b", "c", "d"] {
            let data = accounts.parties(Purpose::Data, (host, [1; 16]), None, None);
            queues.extend(all(&mut pool, &data));
        }
        assert_eq!((anyones.len(), queues.len()), (32, 24));
        let mut admin = 0;
        for host in ["e", "f", "g", "h"] {
            let control = accounts.parties(Purpose::Control, (host, [1; 16]), None, None);
            admin += all(&mut pool, &control).len();
        }
        assert_eq!(admin, 8);
        for list in anyones {
            pool.give_back(list, &anyone);
        }
        assert_eq!(all(&mut pool, &anyone).len(), 32);
    }
}
