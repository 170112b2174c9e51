//! A turn of a core: what the driver and other cores bring, then everything that is due.

use crate::message::{CoreMessage, Message};
use crate::service::closing::CLOSE;
use crate::service::input::RECEIVE;
use crate::service::poll_group::PollGroup;
use crate::service::steering::RELEASE;
use crate::session::output::SEND;
use base::Time;
use reactor::{Completion, Context, Outcome, PollPolicy, Service};
use std::net::Ipv4Addr;

impl Service for PollGroup {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        self.core.work.bring();
        if completion.key.op_namespace != self.core.op_namespace {
            self.channel_completed(completion, cx);
            return;
        }
        let key = completion.key.slab_key();
        match completion.outcome {
            Outcome::Received(received) => {
                if let Some(connection) = self.connections.get_mut(key) {
                    debug_assert_eq!(completion.key.kind, RECEIVE);
                    connection.received(received, &mut self.core, cx);
                }
            }
            Outcome::Sent { list, result } => {
                debug_assert_eq!(completion.key.kind, SEND);
                let Some(connection) = self.connections.get_mut(key) else {
                    // What it counted against went with the connection.
                    let nobody = self.core.accounts.unowned();
                    self.core.lists.give_back(list, &nobody);
                    return;
                };
                let output = &mut connection.session.output;
                let sent = output.sent(list, &mut self.core.sends(), cx.now);
                connection.holding.give_back(sent);
                if let Err(error) = result {
                    connection.broken(&error, &mut self.core, cx);
                }
            }
            Outcome::Closed => {
                debug_assert_eq!(completion.key.kind, CLOSE);
                self.stream_closed(key, cx);
            }
            Outcome::Released(stream) => {
                debug_assert_eq!(completion.key.kind, RELEASE);
                self.released(key, stream, cx);
            }
            Outcome::Accepted(Ok((stream, peer))) => self.accepted(stream, peer, cx),
            Outcome::Accepted(Err(error)) => {
                // The peer's address is not known.
                let nobody = Ipv4Addr::UNSPECIFIED.into();
                if !self.draining
                    && let Some(suppressed) = self.core.log_budget.allow(nobody, cx.now)
                {
                    tracing::warn!(%error, suppressed, "cannot accept a connection");
                }
            }
            // Operations that a poll group never starts.
            Outcome::Connected(_) | Outcome::File { .. } | Outcome::Readable(_) => {}
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        debug_assert!(self.core.stores.is_empty(), "ordered with the input");
        self.core.work.bring();
        match message.0 {
            CoreMessage::Arrive { stream, handover } => self.arrive(stream, *handover, cx),
            CoreMessage::Give { permille, to } => self.give(permille, to, cx.now),
            CoreMessage::Look => {}
            CoreMessage::Change { steps, debt } => self.change(steps, debt, cx),
            CoreMessage::Notify { subsystem, notice } => self.notify(subsystem, notice, cx),
            CoreMessage::EndDenied => self.end_denied(cx),
            CoreMessage::EndQueue { connection, cntlid } => self.end_queue(connection, cntlid, cx),
            CoreMessage::QueuesEnded { connection, cntlid } => {
                self.queues_ended(connection, cntlid)
            }
            CoreMessage::Abort {
                connection,
                cid,
                from,
                asker,
            } => {
                if let Some(aborted) = self.abort(connection, cid, (from, asker), cx) {
                    let answer = CoreMessage::Aborted { asker, aborted };
                    self.core.shared.deliver(from, answer);
                }
            }
            CoreMessage::Aborted { asker, aborted } => self.aborted(asker, aborted, cx),
            CoreMessage::Ended { asker } => self.answer_later(asker, 0, cx),
            CoreMessage::Shutdown => self.shut_down(cx),
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        debug_assert!(self.core.stores.is_empty(), "ordered with the input");
        self.run_timers(cx);
        self.run_devices(cx);
        self.run_waiters(cx);
        self.run_tokens(cx);
        self.run_kicks(cx);
        self.run_actions(cx);
        self.run_withdrawals(cx);
        self.run_output(cx);
        self.run_drain(cx);
        self.run_closing(cx);
        self.forget_silent(cx.now);
        self.trim(cx.now);
        self.steer(cx.now);
        self.scale(cx);
        self.run_moves(cx);
        self.core.publish(cx, self.connections.len());
    }

    fn deadline(&self) -> Time {
        let timers = [
            self.core.connections.timers.next(),
            self.core.switch.held.next(),
            self.steering.deadline(),
            Some(self.core.tokens.deadline()),
            Some(self.scaling_deadline()),
            Some(self.withdrawal_deadline()),
        ];
        let mut deadline = timers.into_iter().flatten().min().unwrap_or(Time::NEVER);
        if self.core.publication.due {
            deadline = deadline.min(self.core.publication.at);
        }
        if self.core.switch.is_loaded() {
            deadline = deadline.min(self.core.switch.forget_at);
        }
        if self.draining && !self.gave_up {
            deadline = deadline.min(self.drain_deadline);
        }
        if self.has_to_trim() {
            deadline = deadline.min(self.core.trimming.next);
        }
        let work = self.core.switch.is_ready() || !self.core.actions.is_empty();
        let work = work || self.core.waiters.untried > 0 || self.core.lists.has_to_look();
        if work || !self.core.waiters.released.is_empty() {
            return Time::ZERO;
        }
        let namespaces = self.core.namespaces.active.iter();
        let namespaces = namespaces.filter_map(|&(s, nsid)| self.core.namespace_ref(s, nsid));
        for namespace in namespaces.filter(|n| n.direct.is_none() || n.in_channel > 0) {
            deadline = deadline.min(namespace.channel.deadline());
            let stuck = !namespace.backlog.is_empty() && namespace.in_channel == 0;
            if stuck || namespace.gathered {
                return Time::ZERO;
            }
        }
        deadline
    }

    fn poll_policy(&self) -> Option<PollPolicy> {
        if self.connections.is_empty() && !self.is_in_use() {
            return Some(PollPolicy::Never);
        }
        self.polls
    }

    fn finished(&self) -> bool {
        let done = self.connections.is_empty() && self.core.namespaces.closing.is_empty();
        self.draining && (done || self.gave_up)
    }
}
