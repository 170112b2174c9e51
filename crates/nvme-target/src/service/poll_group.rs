//! The connections of one core: the service that its loop runs.
//!
//! It dispatches the driver's completions to their connection or channel, executes requests of
//! other cores and the control plane, and sends the queued output once per turn. The first core's
//! poll group also owns the listeners and all admin queues, deals I/O queues out, and decides how
//! many cores are in use.

use crate::change::step::Withdrawal;
use crate::fences::Fence;
use crate::message::{CoreMessage, FenceDebt};
use crate::request::Ticket;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::shared::Shared;
use crate::switch::moves::{Scaling, Steering};
use crate::takeover::Departing;
use base::{Slab, SlabKey, Time};
use block::{Completion as BlockCompletion, Extents};
use reactor::{Context, ListenerId, OpNamespace, PollPolicy};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use switch::thread_scaling::ThreadScalingCounters;

/// The connections of one core.
#[derive(Debug)]
pub struct PollGroup {
    pub(super) core: CoreState,
    pub(super) connections: Slab<Box<Connection>>,
    /// Connections before Connect, oldest first; entries that have since connected or closed are
    /// skipped.
    pub(super) fresh: VecDeque<SlabKey>,
    /// Listeners by the address that was given.
    pub(super) listeners: Vec<(SocketAddr, ListenerId)>,
    /// Namespace (subsystem and identifier) that owns the operations of each operation namespace.
    pub(super) rooms: Vec<Option<(u32, u32)>>,
    /// Requests that completed immediately when they were submitted again.
    pub(super) done: VecDeque<BlockCompletion>,
    /// Commands over extents that completed immediately when they were submitted again.
    pub(super) done_extents: VecDeque<Extents>,
    /// The target is shutting down.
    pub(super) draining: bool,
    pub(super) drain_deadline: Time,
    /// The core ends although a device has not returned everything.
    pub(super) gave_up: bool,
    pub(super) accepting: bool,
    /// Idle polling of the core; `None` until knobs set it.
    pub(super) polls: Option<PollPolicy>,
    pub(super) steering: Steering,
    pub(super) scaling: Scaling,
    /// Connections leave for another process.
    pub(super) departing: Option<Departing>,
    /// Connections that stay, and execute their held commands after the current PDU.
    pub(super) still_held: Vec<SlabKey>,
    /// Pending removals and revocations.
    pub(super) withdrawals: Vec<Withdrawal>,
    /// Fences: one per device, and for a moment the next one.
    pub(super) fences: Vec<CoreFence>,
}

/// A fence on one core.
#[derive(Debug)]
pub(crate) struct CoreFence {
    pub(crate) fence: Fence,
    /// Commands at the device that may change the block; `None` until the fence takes effect.
    pub(crate) waits_for: Option<Vec<Ticket>>,
    /// Dropped once there are none.
    pub(crate) debt: Option<Arc<FenceDebt>>,
}

impl PollGroup {
    /// Creates the service of core `index` of the target.
    pub(crate) fn new(index: usize, op_namespace: OpNamespace, shared: Arc<Shared>) -> Self {
        let connections = shared.limits.connections;
        let knobs = shared.knobs().unwrap_or_default();
        let range = shared.threads.range(&knobs);
        if index == 0 {
            shared
                .threads
                .set_active(range.min, &ThreadScalingCounters::default());
        }
        Self {
            core: CoreState::new(index, op_namespace, shared),
            connections: Slab::with_capacity(connections),
            fresh: VecDeque::new(),
            listeners: Vec::new(),
            rooms: Vec::new(),
            done: VecDeque::new(),
            done_extents: VecDeque::new(),
            draining: false,
            drain_deadline: Time::NEVER,
            gave_up: false,
            accepting: false,
            polls: None,
            steering: Steering::default(),
            scaling: Scaling::new(index, range),
            departing: None,
            still_held: Vec::new(),
            withdrawals: Vec::new(),
            fences: Vec::new(),
        }
    }

    /// Takes over the listener that was opened for `address`; its connections are accepted here, and
    /// their I/O queues are dealt out to all cores.
    pub fn add_listener(&mut self, address: SocketAddr, listener: ListenerId) {
        self.listeners.push((address, listener));
    }

    /// Drops a connection of which nothing is left. It keeps its memory until its devices have
    /// answered; a command that only waits for the end of a change is ended before.
    pub(super) fn reclaim(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.disarm()
            && let Some(controller) = connection.controller()
        {
            self.core.disarm(controller);
        }
        if !connection.is_gone() {
            return;
        }
        let Some(mut connection) = self.connections.remove(key) else {
            return;
        };
        connection
            .session
            .output
            .set_parties(self.core.accounts.unowned());
        if let Some(controller) = connection.controller() {
            self.core.detach(controller);
        }
        self.core.touch();
        if self.departs()
            && let Some(controller) = connection.controller()
        {
            // Its admin queue may be waiting for this queue.
            let admin = controller.admin.core;
            self.core.shared.deliver(admin, CoreMessage::Look);
        }
        let subsystem = connection.access.subsystem;
        drop(connection);
        self.finish_removal(subsystem, cx);
    }

    /// Drops a subsystem that is being removed, after its last connection has ended.
    pub(super) fn finish_removal(&mut self, index: u32, cx: &mut Context<'_>) {
        let slot = self.core.namespaces.subsystems.get_mut(index as usize);
        let removing = slot
            .and_then(|slot| slot.as_ref())
            .is_some_and(|s| s.removing.is_some());
        if !removing
            || self
                .connections
                .iter()
                .any(|(_, c)| c.access.subsystem == index)
        {
            return;
        }
        if let Some(subsystem) = self.core.namespaces.subsystems[index as usize].take() {
            for namespace in subsystem.namespaces.into_iter().flatten() {
                if let Some(scheduler) = namespace.scheduler {
                    self.core.tokens.close(scheduler);
                }
                self.core.namespaces.close(namespace.channel, cx);
            }
        }
    }
}
