//! Thread scaling of the target: which threads are in use, and which queues are where.
//! `[ReFlex §4.3]`
//!
//! The first thread accepts connections and has all admin queues, so it is always in use; it
//! decides for all of them, from what each says of its last period
//! (docs/design/decisions/0014-thread-scaling.md). I/O queues are dealt out to the threads in use when
//! they are connected, and move as those do that application steering moves. A thread that is not
//! in use has nothing: no connection, no timer, nothing to poll. It sleeps until a queue comes.
//! Must never: lose a queue because two threads see different numbers of threads.

use crate::limits::{MOVE_PATIENCE, MOVE_PATIENCE_MAX};
use crate::message::CoreMessage;
use crate::service::connection::Connection;
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::PollGroup;
use crate::session::handover::{MoveReason, PlannedMove};
use base::Time;
use reactor::Context;
use switch::limits::{THREAD_LATE_PERMILLE, THREAD_SCALING_PERIOD};
use switch::thread_scaling::{
    LoadShare, ScalingStep, ThreadLoad, ThreadRange, ThreadScaling, choose,
};

/// The thread that accepts connections and decides for the others.
const FIRST: usize = 0;

/// A queue with this part of its thread's load, in thousandths, is small enough to be shared with
/// any thread that is worth it; there is no need to look for a smaller one.
const SMALL_PERMILLE: u32 = 100;

impl PollGroup {
    /// Returns true while the thread is in use.
    pub(super) fn is_in_use(&self) -> bool {
        self.core.index < self.core.shared.threads.active()
    }

    /// Once a turn, after everything else: counts what the turn took, and does what is due.
    pub(super) fn scale(&mut self, cx: &Context<'_>) {
        self.core.work.turned(cx.now, cx.driver.slept());
        if self.draining {
            return;
        }
        self.deal(cx);
        self.end_period(cx.now);
        self.decide(cx.now);
        self.hand_on(cx.now);
    }

    /// Returns the time at which something is due although nothing happens.
    pub(super) fn scaling_deadline(&self) -> Time {
        if self.draining {
            return Time::NEVER;
        }
        let rule = self.scaling.rule.as_ref();
        let rule = rule.map_or(Time::NEVER, ThreadScaling::deadline);
        let leaves = !self.connections.is_empty() && !self.is_in_use();
        rule.min(if leaves {
            self.scaling.hands_on_at
        } else {
            Time::NEVER
        })
    }

    /// Works within other bounds from now on.
    pub(super) fn set_thread_range(&mut self, range: ThreadRange, now: Time) {
        let scaling = &mut self.scaling;
        if scaling.range == range {
            return;
        }
        scaling.range = range;
        if let Some(rule) = &mut scaling.rule {
            rule.set_range(range);
        }
        // What was before says nothing about the period that begins.
        self.core.work.end_period(now);
        self.core.tokens.was_late();
    }

    /// Gives new queues their threads.
    fn deal(&mut self, cx: &Context<'_>) {
        while let Some(key) = self.core.connections.undealt.pop() {
            let threads = &self.core.shared.threads;
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            // It may have been cut right after Connect; then its socket is gone already.
            if connection.state() >= ConnectionState::Closing {
                continue;
            }
            let Some(queue) = &connection.placement.counted else {
                continue;
            };
            let to = threads.deal(queue);
            let incoming = cx.driver.incoming_core(connection.socket);
            let home = incoming.and_then(|core| threads.on(core));
            connection.placement.home = home.and_then(|home| u8::try_from(home).ok());
            if to != self.core.index {
                let reason = MoveReason::Dealt;
                self.send_off(key, PlannedMove { to, reason }, cx.now + MOVE_PATIENCE);
            }
        }
    }

    /// Tells the first thread now and then how busy this one is.
    fn end_period(&mut self, now: Time) {
        let ThreadRange { min, max } = self.scaling.range;
        if min == max || now.since(self.core.work.since()) < THREAD_SCALING_PERIOD {
            return;
        }
        let busy_permille = self.core.work.end_period(now);
        // Below, it does not matter.
        let asked = busy_permille >= THREAD_LATE_PERMILLE;
        let smallest_permille = if asked { self.smallest_part() } else { 1000 };
        let late = self.core.tokens.was_late();
        let did = ThreadLoad {
            busy_permille,
            smallest_permille,
            late,
        };
        let (index, threads) = (self.core.index, &self.core.shared.threads);
        threads.publish(index, now, did);
        // With no thread to give up, the first one may be asleep. A mailbox that is full wakes it.
        if did.is_pressed() && index != FIRST && threads.active() == min {
            let _ = self.core.shared.send(FIRST, CoreMessage::Look);
        }
    }

    /// Returns the part of the thread's load that its smallest queue with a load has, in thousandths;
    /// or that of one that is small enough.
    fn smallest_part(&self) -> u32 {
        let total: u64 = self.core.switch.load.iter().map(|(_, &load)| load).sum();
        let mut smallest = 1000;
        for (_, connection) in self.connections.iter() {
            let load = connection.placement.demand.load();
            if load == 0 || !is_movable(connection) {
                continue;
            }
            let part = u128::from(load) * 1000 / u128::from(total.max(1));
            smallest = smallest.min(u32::try_from(part).unwrap_or(1000));
            if smallest <= SMALL_PERMILLE {
                break;
            }
        }
        smallest
    }

    /// The first thread: takes threads into use and out of it.
    fn decide(&mut self, now: Time) {
        let due = |rule: &mut ThreadScaling| rule.next() <= now;
        let Some(mut rule) = self.scaling.rule.take_if(due) else {
            return;
        };
        let mut threads = std::mem::take(&mut self.scaling.threads);
        threads.clear();
        threads.extend(self.core.shared.threads.did(now));
        while let Some(step) = rule.step(now, &threads) {
            self.take_step(step, &rule, now);
        }
        self.scaling.threads = threads;
        self.scaling.rule = Some(rule);
    }

    fn take_step(&mut self, step: ScalingStep, rule: &ThreadScaling, now: Time) {
        let shared = &self.core.shared;
        if let ScalingStep::Shrink { thread, into } = step {
            // Before others can see that it is not in use.
            shared.threads.set_successor(thread, into);
        }
        shared.threads.set_active(rule.active(), rule.counters());
        let active = rule.active();
        match step {
            ScalingStep::Grow { thread, part } => {
                tracing::debug!(active, "one more thread is in use");
                self.share(part, thread, now);
            }
            ScalingStep::Balance { thread, part } => self.share(part, thread, now),
            ScalingStep::Shrink { thread, .. } => {
                tracing::debug!(active, "one thread less is in use");
                // A mailbox that is full wakes it.
                let _ = shared.send(thread, CoreMessage::Look);
            }
        }
    }

    fn share(&mut self, part: LoadShare, to: usize, now: Time) {
        let LoadShare { of, permille } = part;
        if of == self.core.index {
            self.give(permille, to, now);
        } else {
            // Where its mailbox is full, it stays as it is, and is asked again.
            let _ = self
                .core
                .shared
                .send(of, CoreMessage::Give { permille, to });
        }
    }

    /// Lets a part of the load here go to another thread.
    pub(super) fn give(&mut self, permille: u32, to: usize, now: Time) {
        if to == self.core.index {
            return;
        }
        let mut queues = std::mem::take(&mut self.scaling.queues);
        queues.clear();
        let movable = self.connections.iter().filter(|(_, c)| is_movable(c));
        // Queues that ask for nothing count as well where all do.
        queues.extend(movable.map(|(key, c)| (key, c.placement.demand.load().max(1))));
        let chosen = choose(&mut queues, permille);
        let reason = MoveReason::Scaled;
        for &(key, _) in &queues[..chosen] {
            self.send_off(key, PlannedMove { to, reason }, now + MOVE_PATIENCE);
        }
        self.scaling.queues = queues;
    }

    /// A thread that is not in use gets rid of what it has.
    fn hand_on(&mut self, now: Time) {
        if self.connections.is_empty() || self.is_in_use() {
            self.scaling.hands_on_at = Time::ZERO;
            self.scaling.patience = MOVE_PATIENCE;
            return;
        }
        if now < self.scaling.hands_on_at {
            return;
        }
        let (to, reason) = (
            self.core.shared.threads.successor(self.core.index),
            MoveReason::Scaled,
        );
        let patience = self.scaling.patience;
        let mut queues = std::mem::take(&mut self.scaling.queues);
        queues.clear();
        let movable = self.connections.iter().filter(|(_, c)| is_movable(c));
        queues.extend(movable.map(|(key, _)| (key, 0)));
        for &(key, _) in &queues {
            self.send_off(key, PlannedMove { to, reason }, now + patience);
        }
        self.scaling.queues = queues;
        // What finds no quiet moment works on for as long as it was held up.
        self.scaling.hands_on_at = now + patience + patience;
        self.scaling.patience = (patience + patience).min(MOVE_PATIENCE_MAX);
    }

    /// A queue that came to a thread which is not in use does not wait for the next try.
    pub(super) fn came(&mut self) {
        if !self.is_in_use() {
            self.scaling.hands_on_at = Time::ZERO;
        }
    }
}

/// Returns true for a queue that can be moved.
pub(super) fn is_movable(connection: &Connection) -> bool {
    connection.state() == ConnectionState::Live
        && connection.placement.moving.is_none()
        && connection.session.output.class().is_some()
}
