//! The connections of one core: the service that its loop runs.
//!
//! It takes what the driver brings to the connection or channel that it is for, carries out what
//! other cores and the control plane ask, and once a turn sends what was gathered. The first core's
//! poll group also owns the listeners and all admin queues, deals I/O queues out, and decides how
//! many cores are in use.

use crate::change::step::Withdrawal;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::shared::Shared;
use crate::switch::moves::{Scaling, Steering};
use base::{Slab, SlabKey, Time};
use block::{Completion as BlockCompletion, Extents};
use reactor::{Context, ListenerId, OpNamespace, PollPolicy};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::thread_scaling::ThreadScalingCounters;

/// The connections of one core.
#[derive(Debug)]
pub struct PollGroup {
    pub(super) core: CoreState,
    pub(super) connections: Slab<Box<Connection>>,
    /// Connections before Connect, oldest first; the list may name connected or closed ones, which are skipped.
    pub(super) fresh: VecDeque<SlabKey>,
    pub(super) listeners: Vec<ListenerId>,
    /// Namespace that the operations of each room belong to, by subsystem and identifier.
    pub(super) rooms: Vec<Option<(u32, u32)>>,
    /// Requests that were done at once when they were submitted again.
    pub(super) done: VecDeque<BlockCompletion>,
    /// The same of commands over extents.
    pub(super) done_extents: VecDeque<Extents>,
    /// The target shuts down.
    pub(super) draining: bool,
    pub(super) drain_deadline: Time,
    /// The core ends although something has not come back from a device.
    pub(super) gave_up: bool,
    pub(super) accepting: bool,
    /// Polling of an idle core, once knobs set it.
    pub(super) polls: Option<PollPolicy>,
    pub(super) steering: Steering,
    pub(super) scaling: Scaling,
    /// Removals and revocations that wait.
    pub(super) withdrawals: Vec<Withdrawal>,
}

impl PollGroup {
    /// The service of core `index` of the target.
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
            withdrawals: Vec::new(),
        }
    }

    /// Takes over a listener; its connections are accepted here and dealt out.
    pub fn add_listener(&mut self, listener: ListenerId) {
        self.listeners.push(listener);
    }

    /// Forgets a connection of which nothing is left. What a device has not answered keeps its
    /// memory until then; a command that only waits for the end of changes is told before.
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
        let subsystem = connection.access.subsystem;
        drop(connection);
        self.finish_removal(subsystem, cx);
    }

    /// Forgets a subsystem that is being removed, once its last connection is gone.
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
