//! State of a core apart from its connections: namespaces, send lists, accounts, and waiting
//! commands and connections.
//!
//! The functions of the service take this state alongside a connection, so that both are mutable at
//! once. Only [`Shared`] is shared with other cores.

use crate::controller::registers::ControllerState;
use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::controller::reply::View;
use crate::extent_table::TablePool;
use crate::fences::Fence;
use crate::limits::{CAPSULE_BUFFERS, Limits, PUBLISH_INTERVAL};
use crate::log_budget::LogBudget;
use crate::message::CoreMessage;
use crate::namespace::{CoreNamespace, DeviceCommand, Namespaces, Submitted};
use crate::qos::core::CoreTokens;
use crate::request::{CommandState, Slot, Ticket, Transitions, WaitingAbort};
use crate::service::connection_state::ConnectionState;
use crate::service::wait_lists::{WaitLists, WaitsFor};
use crate::session::output::SendContext;
use crate::session::send_lists::ListPool;
use crate::shared::Shared;
use crate::shares::Accounts;
use crate::stats::CoreStats;
use crate::switch::core::CoreSwitch;
use crate::switch::work::Work;
use crate::trace::core::CoreTraces;
use base::mutation::{self, Mutation};
use base::{SlabKey, Time, TimerQueue};
use reactor::{BufferClass, BufferPool, Context, OpNamespace, UnorderedStores};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::{Class, PerClass};
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

/// Action on other connections than the current one; executed at the end of the turn.
#[derive(Debug)]
pub(crate) enum Action {
    /// Ends a controller, with all its queues.
    EndController(Arc<SharedController>),
    /// Ends another controller of the same host; the command that requested it waits.
    EndOther {
        controller: Arc<SharedController>,
        asker: Ticket,
    },
    /// Ends the I/O queues of a controller that was disabled or shut down.
    EndQueues(Arc<SharedController>),
    /// Aborts a command of another queue; the Abort command waits.
    Abort {
        queue: ConnectionPlace,
        cid: u16,
        asker: Ticket,
    },
    /// Fences the block of a fused pair.
    Fence(Fence),
    /// Removes the fence of a pair, by its second half.
    Unfence(Ticket),
}

/// Commands and connections that wait for limited resources of the core.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// Commands, and input of connections, that wait for a buffer or for a share of the buffers.
    pub(crate) lists: WaitLists,
    /// The caller of [`may_take`](Self::may_take) was the first of its list, so the entries behind
    /// it do not block it.
    pub(crate) first: bool,
    /// Number of entries waiting for a share that must retry before the core may sleep, because a
    /// resource was returned or an entry succeeded.
    pub(crate) untried: usize,
    /// Commands that pass their gates again because their namespace opened or their tenant changed.
    pub(crate) released: VecDeque<Ticket>,
}

impl Waiters {
    /// Makes all entries that wait for a share retry, because a share may be free.
    pub(crate) fn try_all(&mut self) {
        self.untried = self.lists.len(WaitsFor::SHARE);
    }

    /// Checks that a buffer of at least `bytes` may be taken from the pool: one is free, and no
    /// earlier entry waits for it.
    ///
    /// # Errors
    /// The list to wait in.
    pub(crate) fn may_take(&mut self, bytes: usize, pool: &BufferPool) -> Result<(), WaitsFor> {
        let is_first = std::mem::take(&mut self.first);
        let mut own = None;
        let sizes = pool.classes().zip(pool.usage()).enumerate();
        // The pool hands out the smallest free buffer.
        for (number, (_, (_, free, _))) in
            sizes.filter(|(_, (class, _))| class.bytes >= bytes && class.count > 0)
        {
            let list = WaitsFor::buffer(number);
            let own = *own.get_or_insert(list);
            let ahead = self.lists.len(list) > 0 && !(is_first && list == own);
            if ahead {
                return Err(own);
            }
            if free > 0 {
                return Ok(());
            }
        }
        Err(own.unwrap_or(WaitsFor::SHARE))
    }

    /// Removes a command from the list in which it waits for a buffer or a share, if any.
    pub(crate) fn forget(&mut self, entry: &mut Slot) {
        let place = std::mem::take(&mut entry.order.waits);
        if place != 0 {
            self.lists.remove(place);
        }
    }
}

/// The core's connections, by the work due on them.
#[derive(Debug)]
pub(crate) struct ConnectionLists {
    /// Connections before Connect.
    pub(crate) fresh: usize,
    /// Number of I/O queues by the class that their hosts named.
    pub(crate) classes: PerClass<usize>,
    /// Connections to close once their commands have finished.
    pub(crate) draining: Vec<SlabKey>,
    /// I/O queues that were connected in this turn and have no thread yet.
    pub(crate) undealt: Vec<SlabKey>,
    pub(crate) timers: TimerQueue<SlabKey>,
    /// Numbers of connections that entered each state, by discriminant.
    pub(crate) entered: [u64; ConnectionState::COUNT],
}

/// Publication of the counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Publication {
    /// Counters changed since the last publication.
    pub(crate) due: bool,
    /// Earliest time of the next publication.
    pub(crate) at: Time,
}

/// Schedule for freeing unused queue memory.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    /// Time of the next check.
    pub(crate) next: Time,
    /// Number of commands received by the last check.
    pub(crate) commands: u64,
}

/// State of a core apart from its connections.
#[derive(Debug)]
pub(crate) struct CoreState {
    pub(crate) index: usize,
    pub(crate) op_namespace: OpNamespace,
    pub(crate) limits: Limits,
    pub(crate) shared: Arc<Shared>,
    pub(crate) switch: CoreSwitch,
    pub(crate) tokens: CoreTokens,
    /// Commands need no tokens, because the target is shutting down.
    pub(crate) unscheduled: bool,
    pub(crate) namespaces: Namespaces,
    /// Data of writes that were executed immediately. Ordered before everything except the next
    /// reads and writes of the same input, so that a core or host that learns of such a write, or
    /// of a later event, finds its data.
    pub(crate) stores: UnorderedStores,
    pub(crate) lists: ListPool,
    /// Extent tables.
    pub(crate) tables: TablePool,
    pub(crate) accounts: Accounts,
    /// Buffers for the data of Connect and of admin commands: one for each possible connection
    /// before Connect, and one for each admin queue.
    pub(crate) admin_buffers: BufferPool,
    /// Buffers for in-capsule data that precedes R2T data in the receive stream.
    pub(crate) capsule_buffers: BufferPool,
    pub(crate) waiters: Waiters,
    pub(crate) connections: ConnectionLists,
    pub(crate) actions: Vec<Action>,
    /// Abort commands that wait for the end of a command of this core.
    pub(crate) aborts: Vec<WaitingAbort>,
    pub(crate) stats: CoreStats,
    /// State transitions of commands.
    pub(crate) states: Transitions,
    /// Open traces.
    pub(crate) traces: CoreTraces,
    pub(crate) publication: Publication,
    pub(crate) trimming: Trimming,
    /// Time during which the core had work.
    pub(crate) work: Work,
    /// Log lines that peers may still cause.
    pub(crate) log_budget: LogBudget,
}

/// Returns the buffers for admin queues, which only the first core has. They occupy only address
/// space until their first use.
fn admin_buffers(index: usize, limits: &Limits) -> BufferPool {
    let queues = limits.fresh_max() + limits.controllers;
    let class = BufferClass {
        bytes: ADMIN_IN_CAPSULE_BYTES as usize,
        count: if index == 0 {
            queues.min(u16::MAX.into())
        } else {
            0
        },
    };
    BufferPool::new(&[class]).expect("there is address space for some MiB")
}

/// Returns the buffers of a core for in-capsule data that must not wait. They occupy only address
/// space until their first use.
fn capsule_buffers(limits: &Limits) -> BufferPool {
    let class = BufferClass {
        // A list of ranges has at most 4 KiB.
        bytes: (limits.in_capsule_bytes as usize).max(4096),
        count: CAPSULE_BUFFERS,
    };
    BufferPool::new(&[class]).expect("there is address space for a MiB")
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
            unscheduled: false,
            namespaces: Namespaces::new(),
            stores: UnorderedStores::default(),
            tables: TablePool::default(),
            accounts: Accounts::default(),
            admin_buffers: admin_buffers(index, &limits),
            capsule_buffers: capsule_buffers(&limits),
            waiters: Waiters {
                lists: WaitLists::with_capacity(2048),
                first: false,
                untried: 0,
                released: VecDeque::new(),
            },
            connections: ConnectionLists {
                fresh: 0,
                classes: PerClass::default(),
                draining: Vec::new(),
                undealt: Vec::new(),
                timers: TimerQueue::with_capacity(1024),
                entered: [0; ConnectionState::COUNT],
            },
            actions: Vec::with_capacity(64),
            aborts: Vec::new(),
            stats: CoreStats::default(),
            states: Transitions::default(),
            traces: CoreTraces::default(),
            publication: Publication::default(),
            trimming: Trimming::default(),
            work: Work::default(),
            log_budget: LogBudget::default(),
            limits,
        }
    }

    /// Returns the parts that the send side of a connection uses.
    #[inline]
    pub(crate) fn sends(&mut self) -> SendContext<'_> {
        SendContext {
            op_namespace: self.op_namespace,
            switch: &mut self.switch,
            stores: &mut self.stores,
            lists: &mut self.lists,
            limits: &self.limits,
            stats: &mut self.stats,
        }
    }

    /// Returns the parts that a controller reads.
    pub(crate) fn view(&self, now: Time) -> View<'_> {
        View {
            limits: &self.limits,
            shared: &self.shared,
            now,
        }
    }

    /// Returns a namespace of a subsystem mutably, if this core has it.
    #[inline]
    pub(crate) fn namespace(&mut self, subsystem: u32, nsid: u32) -> Option<&mut CoreNamespace> {
        self.namespaces.get_mut(subsystem, nsid)
    }

    /// Returns a namespace of a subsystem, if this core has it.
    #[inline]
    pub(crate) fn namespace_ref(&self, subsystem: u32, nsid: u32) -> Option<&CoreNamespace> {
        self.namespaces.get(subsystem, nsid)
    }

    /// Returns the namespaces of a subsystem whose commands cost tokens, each with the index of its
    /// scheduler. Control path: allocates.
    pub(crate) fn scheduled(&self, subsystem: u32) -> Vec<(u32, u32)> {
        let namespaces = self.namespaces.of(subsystem).iter().flatten();
        namespaces
            .filter_map(|namespace| Some((namespace.shared.nsid(), namespace.scheduler?)))
            .collect()
    }

    /// Removes the I/O queue at `place` from its controller.
    pub(crate) fn leave_queues(
        &self,
        controller: &SharedController,
        queue: u16,
        place: ConnectionPlace,
        now: Time,
    ) {
        let mut queues = controller.queues();
        queues.leave(queue, place, now);
        if queues.places.is_empty() {
            // The admin queue may be draining and waiting for this queue.
            self.shared
                .deliver(controller.admin.core, CoreMessage::Look);
        }
    }

    /// Notes that a connection of a controller can no longer change data; after the last one, the
    /// commands that wait for that are answered.
    pub(crate) fn disarm(&self, controller: &SharedController) {
        let (waiting, without_queues) = controller.disarm();
        if without_queues {
            let note = CoreMessage::QueuesEnded {
                connection: controller.admin.connection,
                cntlid: controller.id,
            };
            self.shared.deliver(controller.admin.core, note);
        }
        for (core, asker) in waiting {
            // Sent to this core, too: the answer must not precede this turn's other work.
            self.shared.deliver(core, CoreMessage::Ended { asker });
        }
        if mutation::active(Mutation::CommandOutlives) {
            self.leave(controller);
        }
    }

    /// Notes that a connection of a controller has ended completely; after the last one, another
    /// controller may reuse the identifier.
    pub(crate) fn detach(&self, controller: &SharedController) {
        if !mutation::active(Mutation::CommandOutlives) {
            self.leave(controller);
        }
    }

    fn leave(&self, controller: &SharedController) {
        if controller.detach() {
            self.shared.controllers().remove(controller.id);
        }
    }

    /// Submits a command of a queue of `class` (`None`: control) to a namespace's device. Returns
    /// the command if it is complete; otherwise its number in the line for room in the device, or 0
    /// if the device has it.
    pub(crate) fn submit<C: DeviceCommand>(
        &mut self,
        subsystem: u32,
        nsid: u32,
        class: Option<Class>,
        command: C,
        cx: &mut Context<'_>,
    ) -> Result<C::Done, u32> {
        let class = self.switch.order_of(class);
        match self.namespaces.submit(subsystem, nsid, class, command, cx) {
            Submitted::Done(done) => Ok(done),
            Submitted::Queued => Err(0),
            Submitted::Waits(number) => {
                self.stats.device_waits += 1;
                Err(number)
            }
        }
    }

    /// Answers the Abort commands that waited for the end of a command.
    pub(crate) fn end_aborts(&mut self, ended: Ticket) {
        let shared = &self.shared;
        self.aborts.retain(|waiting| {
            if waiting.aborted == ended {
                let asker = waiting.asker;
                let note = CoreMessage::Aborted {
                    asker,
                    aborted: true,
                };
                shared.deliver(waiting.from, note);
            }
            waiting.aborted != ended
        });
    }

    /// Marks the counters as changed.
    #[inline]
    pub(crate) fn touch(&mut self) {
        self.publication.due = true;
    }

    /// Publishes all counters, at most every [`PUBLISH_INTERVAL`].
    pub(crate) fn publish(&mut self, cx: &Context<'_>, connections: usize) {
        let now = cx.now;
        if !self.publication.due || now < self.publication.at {
            return;
        }
        self.publication.due = false;
        self.publication.at = now + PUBLISH_INTERVAL;
        self.publish_usage(cx.driver.buffers());
        self.publish_states();
        let driver = cx.driver.stats();
        self.stats.connections = connections as u64;
        self.stats.latency_queues = self.connections.classes[Class::Latency] as u64;
        self.stats.throughput_queues = self.connections.classes[Class::Throughput] as u64;
        self.stats.work_ns = self.work.busy().0;
        self.stats.loops = driver.turns;
        self.stats.sleeps = driver.sleeps;
        self.stats.receives = driver.receives;
        self.stats.received_bytes = driver.received_bytes;
        self.stats.sends = driver.sends;
        self.stats.sent_bytes = driver.sent_bytes;
        if driver.worn_keys > self.stats.worn_tls_keys {
            let connections = driver.worn_keys - self.stats.worn_tls_keys;
            tracing::warn!(
                connections,
                "TLS keys have nearly encrypted their limit of 2^24.5 \
                records: let the hosts reconnect"
            );
        }
        self.stats.worn_tls_keys = driver.worn_keys;
        self.shared.core_stats.of(self.index).publish(&self.stats);
        let switch = self.switch.stats(&driver.service);
        if !self.shared.switch_stats.of(self.index).publish(&switch) {
            // A reader holds the lock: publish next time.
            self.publication.due = true;
        }
        let index = self.index;
        for namespace in self.namespaces.iter_mut() {
            namespace.publish(index);
        }
        self.publication.due |= self.tokens.publish();
    }

    /// Updates the gauges of the core's limited resources.
    fn publish_usage(&mut self, buffers: &BufferPool) {
        let (all, used) = buffers.bytes();
        self.stats.buffer_bytes = all as u64;
        self.stats.buffer_bytes_used = used as u64;
        self.stats.buffer_waiters = self.waiters.lists.len_all() as u64;
        self.stats.send_lists_used = self.lists.used() as u64;
        self.stats.extent_tables_used = self.accounts.tables();
        self.stats.fresh_connections = self.connections.fresh as u64;
        self.stats.work_bytes = self.accounts.work_bytes();
    }

    /// Counts a controller's state if it changed.
    pub(crate) fn count_controller(&mut self, before: ControllerState, state: ControllerState) {
        let counter = match state {
            _ if state == before => return,
            ControllerState::Disabled => &mut self.stats.controllers_disabled,
            ControllerState::Ready => &mut self.stats.controllers_ready,
            ControllerState::ShutdownOccurring => &mut self.stats.controllers_shutting_down,
            ControllerState::ShutdownComplete => &mut self.stats.controllers_shut_down,
        };
        *counter += 1;
    }

    /// Copies the numbers of entries into each state to the counters.
    fn publish_states(&mut self) {
        let (stats, states) = (&mut self.stats, &self.states);
        stats.commands_dispatched = states.of(CommandState::Dispatched);
        stats.commands_arriving = states.of(CommandState::Arriving);
        stats.commands_transferring = states.of(CommandState::Transferring);
        stats.commands_paused = states.of(CommandState::WaitingForNamespace);
        stats.commands_unpaid = states.of(CommandState::WaitingForTokens);
        stats.commands_unbuffered = states.of(CommandState::WaitingForBuffer);
        stats.commands_executing = states.of(CommandState::Executing);
        stats.commands_unsent = states.of(CommandState::Answering);
        let entered = &self.connections.entered;
        stats.connections_initialized = entered[ConnectionState::AwaitingConnect as usize];
        stats.connections_live = entered[ConnectionState::Live as usize];
        stats.connections_drained = entered[ConnectionState::Draining as usize];
        stats.connections_terminated = entered[ConnectionState::Terminating as usize];
        stats.connections_closing = entered[ConnectionState::Closing as usize];
        stats.connections_closed = entered[ConnectionState::Closed as usize];
    }
}
