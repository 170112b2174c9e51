//! Devices of a core: their channels move along, and their completions reach commands.

use crate::namespace::CoreNamespace;
use crate::request::Ticket;
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use base::SlabKey;
use block::{BlockError, Completion as BlockCompletion, Request, Submit};
use reactor::{Completion, Context};
use std::collections::VecDeque;

impl PollGroup {
    /// Gives a device's completion to the command that waits for it.
    pub(super) fn complete(&mut self, completion: BlockCompletion, cx: &mut Context<'_>) {
        let ticket = Ticket::from_tag(completion.tag);
        let Some(connection) = self.connections.get_mut(ticket.connection) else {
            return;
        };
        let BlockCompletion { result, data, .. } = completion;
        requests::completed(connection, ticket.slot, result, data, &mut self.core, cx);
        if connection.state() == ConnectionState::Closed {
            self.reclaim(ticket.connection, cx);
        }
    }

    /// An operation of a device's channel completed.
    pub(super) fn channel_completed(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let index = usize::from(op_namespace.0);
        if let Some(&Some((subsystem, nsid))) = self.rooms.get(index)
            && let Some(namespace) = self.core.namespace(subsystem, nsid)
            && namespace.channel.owns(op_namespace)
        {
            namespace.channel.complete(completion, cx);
            self.core.namespaces.activate(subsystem, nsid);
            return;
        }
        let mut found = None;
        for (subsystem, slot) in (0u32..).zip(&self.core.namespaces.subsystems) {
            for namespace in slot.iter().flat_map(|s| s.namespaces.iter().flatten()) {
                if namespace.channel.owns(op_namespace) {
                    found = Some((subsystem, namespace.shared.nsid()));
                }
            }
        }
        if let Some((subsystem, nsid)) = found {
            self.rooms.resize(self.rooms.len().max(index + 1), None);
            self.rooms[index] = Some((subsystem, nsid));
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

    /// Moves every device along that has something to do: what is done, what had no room, what is
    /// due. Those that rest cost nothing, however many they are.
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
        let Some(namespace) = self.core.namespace(subsystem, nsid) else {
            return;
        };
        if finished > 0 || namespace.in_channel == 0 {
            resubmit(namespace, &mut self.done, cx);
            namespace.settle();
        }
    }

    /// Takes back what of a closed connection its devices had no room for: it need not be done any
    /// more, and a device that hangs would never take it.
    pub(super) fn withdraw(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let mut withdrawn = Vec::new();
        for namespace in self.core.namespaces.iter_mut() {
            let theirs = |request: &Request| Ticket::from_tag(request.tag).connection == key;
            namespace.backlog.take_all(theirs, &mut withdrawn);
            namespace.settle();
        }
        for Request { tag, data, .. } in withdrawn {
            let result = Err(BlockError::Aborted);
            self.complete(BlockCompletion { tag, result, data }, cx);
        }
    }

    /// Lets every device begin what was gathered for it this turn.
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

    /// Lets go of channels of which nothing is left in the driver.
    pub(super) fn run_closing(&mut self, cx: &mut Context<'_>) {
        self.core.namespaces.closing.retain_mut(|channel| {
            channel.tick(cx);
            while channel.reap().is_some() {}
            !channel.closed()
        });
    }
}

/// Submits again what the device had no room for, until it has none again.
fn resubmit(
    namespace: &mut CoreNamespace,
    done: &mut VecDeque<BlockCompletion>,
    cx: &mut Context<'_>,
) {
    while let Some((class, request)) = namespace.backlog.pop() {
        match namespace.channel.submit(request, cx) {
            Submit::Done(completion) => done.push_back(completion),
            Submit::Queued => {
                namespace.in_channel += 1;
                namespace.gathered = true;
            }
            Submit::Busy(request) => {
                namespace.backlog.give_back(class, request);
                return;
            }
        }
    }
}
