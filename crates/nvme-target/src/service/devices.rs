//! Devices of a core: runs their channels and passes their completions to commands.

use crate::namespace::{CoreNamespace, Waiting};
use crate::request::Ticket;
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::PollGroup;
use base::SlabKey;
use block::{BlockError, Completion as BlockCompletion, Extents, Request, Submit, SubmitExtents};
use reactor::{Completion, Context};
use std::collections::VecDeque;

impl PollGroup {
    /// Passes a device's completion to the command that waits for it.
    pub(super) fn complete(&mut self, completion: BlockCompletion, cx: &mut Context<'_>) {
        let ticket = Ticket::from_tag(completion.tag);
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return;
        };
        let BlockCompletion { result, data, .. } = completion;
        let part = Ticket::part(completion.tag);
        let mut command = connection.run(ticket.slot, &mut self.core, cx);
        command.completed(part, result, data);
        if connection.state() == ConnectionState::Closed {
            self.reclaim(ticket.connection, cx);
        }
    }

    /// Passes a completed command over extents to the command that waits for it.
    fn complete_extents(&mut self, command: Extents, cx: &mut Context<'_>) {
        let ticket = Ticket::from_tag(command.tag);
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return;
        };
        connection
            .run(ticket.slot, &mut self.core, cx)
            .completed_extents(command);
        if connection.state() == ConnectionState::Closed {
            self.reclaim(ticket.connection, cx);
        }
    }

    /// Handles the completion of an operation of a device's channel.
    pub(super) fn channel_completed(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let index = usize::from(op_namespace.0);
        let known = self.rooms.get(index).copied().flatten();
        let namespaces = &self.core.namespaces;
        let owner = known
            .filter(|&(subsystem, nsid)| {
                let namespace = namespaces.get(subsystem, nsid);
                namespace.is_some_and(|namespace| namespace.channel.owns(op_namespace))
            })
            .or_else(|| namespaces.owner(op_namespace));
        if let Some((subsystem, nsid)) = owner {
            self.rooms.resize(self.rooms.len().max(index + 1), None);
            self.rooms[index] = owner;
            if let Some(namespace) = self.core.namespace(subsystem, nsid) {
                namespace.channel.complete(completion, cx);
            }
            self.core.namespaces.activate(subsystem, nsid);
            return;
        }
        let mut closing = self.core.namespaces.closing.iter_mut();
        if let Some(channel) = closing.find(|channel| channel.owns(op_namespace)) {
            channel.complete(completion, cx);
        }
    }

    /// Runs every device that has completions, waiting requests or a due timer. Idle devices cost
    /// nothing, regardless of their number.
    pub(super) fn run_devices(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(&(subsystem, nsid)) = self.core.namespaces.active.get(index) {
            self.run_device(subsystem, nsid, cx);
            if let Some(namespace) = self.core.namespace(subsystem, nsid) {
                if namespace.active && !namespace.is_idle() {
                    index += 1;
                    continue;
                }
                namespace.active = false;
            }
            self.core.namespaces.active.swap_remove(index);
        }
        while let Some(completion) = self.done.pop_front() {
            self.complete(completion, cx);
        }
        while let Some(command) = self.done_extents.pop_front() {
            self.complete_extents(command, cx);
        }
    }

    fn run_device(&mut self, subsystem: u32, nsid: u32, cx: &mut Context<'_>) {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        if namespace.direct.is_some() && namespace.in_channel == 0 && namespace.backlog.is_empty() {
            return;
        }
        namespace.channel.tick(cx);
        let mut finished = 0;
        loop {
            let Some(namespace) = self.core.namespace(subsystem, nsid) else {
                return;
            };
            let Some(completion) = namespace.channel.reap() else {
                break;
            };
            namespace.in_channel -= 1;
            finished += 1;
            self.core.work.bring();
            self.complete(completion, cx);
        }
        while let Some(namespace) = self.core.namespace(subsystem, nsid)
            && let Some(command) = namespace.channel.reap_extents()
        {
            namespace.in_channel -= 1;
            finished += 1;
            self.core.work.bring();
            self.complete_extents(command, cx);
        }
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        if finished > 0 || namespace.in_channel == 0 {
            resubmit(namespace, (&mut self.done, &mut self.done_extents), cx);
            namespace.settle();
        }
    }

    /// Removes a closed connection's requests from the backlogs of its devices: they are no longer
    /// needed, and a device that hangs would never take them.
    pub(super) fn withdraw(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let mut withdrawn = Vec::new();
        for namespace in self.core.namespaces.iter_mut() {
            let theirs = |waiting: &Waiting| Ticket::from_tag(waiting.tag()).connection == key;
            namespace.backlog.take_all(theirs, &mut withdrawn);
            namespace.settle();
        }
        let result = Err(BlockError::Aborted);
        for waiting in withdrawn {
            match waiting {
                Waiting::Request(Request { tag, data, .. }) => {
                    self.complete(BlockCompletion { tag, result, data }, cx);
                }
                Waiting::Extents(command) => self.complete_extents(command.ended(result), cx),
            }
        }
    }

    /// Moves the backlog of a pausing namespace back to its gate, because a change waits only for
    /// requests that the device has. Parts of commands over extents, which have buffers, stay.
    pub(super) fn put_back(&mut self, subsystem: u32, nsid: u32) {
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        let mut taken = Vec::new();
        let whole = |waiting: &Waiting| Ticket::part(waiting.tag()).is_none();
        namespace.backlog.take_all(whole, &mut taken);
        for waiting in taken {
            let ticket = Ticket::from_tag(waiting.tag());
            if let Some(connection) = self.connections.get_mut(ticket.connection) {
                connection.put_back(ticket.slot, nsid, waiting, &mut self.core);
            }
        }
        if let Some(namespace) = self.core.namespace(subsystem, nsid) {
            namespace.settle();
        }
    }

    /// Makes every device begin the requests submitted in this turn.
    pub(super) fn run_kicks(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.core.namespaces.active.len() {
            let (subsystem, nsid) = self.core.namespaces.active[index];
            if let Some(namespace) = self.core.namespace(subsystem, nsid)
                && std::mem::take(&mut namespace.gathered)
            {
                namespace.channel.kick(cx);
            }
        }
    }

    /// Drops closing channels that have no operation left in the driver.
    pub(super) fn run_closing(&mut self, cx: &mut Context<'_>) {
        self.core.namespaces.closing.retain_mut(|channel| {
            channel.tick(cx);
            while channel.reap().is_some() {}
            while channel.reap_extents().is_some() {}
            !channel.closed()
        });
    }
}

/// Submits the backlog of a device until the device has no room.
fn resubmit(
    namespace: &mut CoreNamespace,
    (done, done_extents): (&mut VecDeque<BlockCompletion>, &mut VecDeque<Extents>),
    cx: &mut Context<'_>,
) {
    while let Some((class, number, waiting)) = namespace.backlog.pop() {
        let busy = match waiting {
            Waiting::Request(request) => match namespace.channel.submit(request, cx) {
                Submit::Done(completion) => {
                    done.push_back(completion);
                    continue;
                }
                Submit::Queued => None,
                Submit::Busy(request) => Some(Waiting::Request(request)),
            },
            Waiting::Extents(command) => match namespace.channel.submit_extents(command, cx) {
                SubmitExtents::Done(command) => {
                    done_extents.push_back(command);
                    continue;
                }
                SubmitExtents::Queued => None,
                SubmitExtents::Busy(command) => Some(Waiting::Extents(command)),
            },
        };
        if let Some(waiting) = busy {
            namespace.backlog.give_back(class, number, waiting);
            return;
        }
        namespace.in_channel += 1;
        namespace.gathered = true;
    }
}
