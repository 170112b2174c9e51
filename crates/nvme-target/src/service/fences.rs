//! The [fences](crate::fences) of a core.

use crate::fences::{DeviceId, Fence};
use crate::message::{CoreMessage, FenceDebt};
use crate::request::{CommandState, Ticket};
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::{CoreFence, PollGroup};
use reactor::Context;
use std::sync::Arc;

impl PollGroup {
    /// Puts a fused pair of this core into the line for its device's fence.
    pub(super) fn enter_fence(&self, fence: Fence) {
        if self.core.shared.fences.enter(fence) {
            self.build_fence(fence);
        }
    }

    /// Removes the fence of a pair of this core that has ended, and builds the one of the next pair.
    pub(super) fn leave_fence(&self, pair: Ticket) {
        let mut fences = self.fences.iter().map(|fence| fence.fence);
        let ours = |fence: &Fence| fence.core == self.core.index && fence.pair == pair;
        let Some(fence) = fences.find(ours) else {
            return;
        };
        let next = self.core.shared.fences.leave(fence.device);
        self.core.shared.deliver_all(|| CoreMessage::Unfence(fence));
        if let Some(next) = next {
            self.build_fence(next);
        }
    }

    fn build_fence(&self, fence: Fence) {
        let Some(mailbox) = self.core.shared.cores().get(fence.core).cloned() else {
            return;
        };
        let debt = Arc::new(FenceDebt { fence, mailbox });
        let note = || CoreMessage::Fence(Arc::clone(&debt));
        self.core.shared.deliver_all(note);
    }

    /// Notes a fence, which takes effect in [`run_fences`](Self::run_fences): commands that an
    /// earlier fence delayed come first, so that a series of pairs never starves them.
    pub(super) fn fence(&mut self, debt: Arc<FenceDebt>) {
        self.fences.push(CoreFence {
            fence: debt.fence,
            waits_for: None,
            debt: Some(debt),
        });
    }

    /// Removes a fence: the commands that it delayed continue.
    pub(super) fn unfence(&mut self, ended: Fence) {
        self.fences.retain(|fence| fence.fence != ended);
        for namespace in self.core.namespaces.iter_mut() {
            let device = DeviceId::of(namespace);
            if device == ended.device {
                namespace.fence = fenced_block(&self.fences, device);
                let waiting = std::mem::take(&mut namespace.waiting);
                self.core.waiters.released.extend(waiting);
            }
        }
    }

    /// Makes new fences take effect, and acknowledges those that no command at a device violates.
    pub(super) fn run_fences(&mut self) {
        for index in 0..self.fences.len() {
            let CoreFence {
                fence,
                waits_for,
                debt,
            } = &mut self.fences[index];
            if debt.is_none() {
                continue;
            }
            let (fence, found) = (*fence, waits_for.take());
            let mut found = found.unwrap_or_else(|| self.begin_fence(fence));
            found.retain(|&ticket| self.violates(ticket, fence));
            let fence = &mut self.fences[index];
            if found.is_empty() {
                fence.debt = None;
            }
            fence.waits_for = Some(found);
        }
    }

    /// Applies a fence to the namespaces of its device. Returns the commands that are executing in
    /// any of them.
    fn begin_fence(&mut self, fence: Fence) -> Vec<Ticket> {
        let mut busy = false;
        for namespace in self.core.namespaces.iter_mut() {
            if DeviceId::of(namespace) == fence.device {
                namespace.fence = Some(fence.lba);
                busy |= !namespace.is_quiet();
            }
        }
        let connections = self.connections.iter().filter(|_| busy);
        let executing = connections.flat_map(|(_, connection)| {
            let slots = connection.session.commands.executing();
            slots.map(|slot| connection.ticket(slot))
        });
        executing.collect()
    }

    /// Returns true while a command other than a fused pair is executing that may change the
    /// fenced block.
    fn violates(&mut self, ticket: Ticket, fence: Fence) -> bool {
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return false;
        };
        let subsystem = connection.access.subsystem;
        let Some(entry) = connection.session.commands.get(ticket.slot) else {
            return false;
        };
        let namespace = self.core.namespaces.get(subsystem, entry.nsid);
        entry.state() == CommandState::Executing
            && entry.fused.is_none()
            && entry.may_change(fence.lba)
            && namespace.is_some_and(|namespace| DeviceId::of(namespace) == fence.device)
    }

    /// Executes the pair whose fence all cores have acknowledged.
    pub(super) fn fenced(&mut self, fence: Fence, cx: &mut Context<'_>) {
        let key = fence.pair.connection;
        let Some(connection) = self.connections.get_mut(key) else {
            return self.leave_fence(fence.pair);
        };
        connection
            .run(fence.pair.slot, &mut self.core, cx)
            .begin_pair();
        if connection.state() == ConnectionState::Closed {
            self.reclaim(key, cx);
        }
    }
}

/// Returns the block of a device that is fenced on this core.
pub(super) fn fenced_block(fences: &[CoreFence], device: DeviceId) -> Option<u64> {
    let mut applied = fences.iter().filter(|fence| fence.waits_for.is_some());
    let fence = applied.find(|fence| fence.fence.device == device);
    fence.map(|fence| fence.fence.lba)
}
