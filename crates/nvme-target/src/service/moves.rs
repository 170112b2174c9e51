//! Moves of I/O queues between cores: application steering `[blk-switch §3.3, Algorithm 2]`
//! (docs/design/decisions/0008-steered-queues.md) and thread scaling `[ReFlex §4.3]`
//! (docs/design/decisions/0014-thread-scaling.md).
//!
//! Each core steers its own queues, with their connections, by its load and the last published
//! loads of the other cores. A queue leaves when it has no command in flight; for that it takes no
//! further commands. After [`MOVE_PATIENCE`] the move is cancelled. The first thread accepts
//! connections and has all admin queues, so it is always in use; it decides how many threads are.
//! I/O queues are dealt out to these at Connect. An unused thread sleeps until a queue arrives.
//! Invariant: no queue is lost if two threads see different numbers of threads.

use crate::controller::registry::ConnectionPlace;
use crate::limits::{MOVE_PATIENCE, MOVE_PATIENCE_MAX};
use crate::message::{CoreMessage, Message};
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::service::poll_group::PollGroup;
use crate::session::handover::{Handover, MoveReason, PlannedMove};
use crate::shares::Purpose;
use crate::switch::moves::Steering;
use base::mutation::{self, Mutation};
use base::units::CoreId;
use base::{SlabKey, Time};
use reactor::{Context, Op, OpKey, SocketId, Stream};
use switch::application_steering::{Hysteresis, Move, SteeredThread};
use switch::class::Placement;
use switch::limits::{AFFINITY_DWELL, LOAD_RESET, THREAD_LATE_PERMILLE, THREAD_SCALING_PERIOD};
use switch::thread_scaling::{
    LoadShare, ScalingStep, ThreadLoad, ThreadRange, ThreadScaling, choose,
};
use switch::{Class, CoreSet, PerClass, affinity};
use transport::Receiver;

impl Connection {
    /// Returns true if nothing is in flight that a move would have to transfer.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_free = self.chap.is_none() && self.session.held.is_none();
        self.state() == ConnectionState::Live && is_free && self.session.is_quiet()
    }

    /// Plans a move for the next quiet moment.
    pub(crate) fn plan_move(&mut self, planned: PlannedMove) {
        if let Some(counted) = &mut self.placement.counted {
            counted.move_to(planned.to);
        }
        self.placement.moving = Some(planned);
    }

    /// Cancels a planned move because the queue had no quiet moment. A queue that was to return
    /// home does not try again, or a queue with a slow device would spend its time waiting for
    /// quiet moments.
    pub(crate) fn cancel_move(&mut self, here: usize) {
        let placement = &mut self.placement;
        let to = placement.moving.take().map(|planned| planned.to);
        placement.home = placement.home.filter(|&home| to != Some(usize::from(home)));
        if let Some(counted) = &mut placement.counted {
            counted.move_to(here);
        }
    }

    /// Removes the connection from a core that has released its socket; `None` for a connection
    /// that is no I/O queue.
    pub(crate) fn hand_over(mut self, core: &mut CoreState) -> Option<Handover> {
        let class = self.session.output.class()?;
        let planned = self.placement.moving;
        let reason = planned.map_or(MoveReason::Steered, |planned| planned.reason);
        let demand = self.placement.demand;
        let counted = self.placement.counted.take();
        self.closed(core);
        let Owner::Io(controller) = self.owner else {
            return None;
        };
        Some(Handover {
            from: ConnectionPlace {
                core: core.index,
                connection: self.key,
            },
            controller,
            subsystem: self.access.subsystem,
            terms: self.session.commands.terms(),
            class,
            reason,
            counted,
            permit: self.permit,
            ends: (self.peer, self.local),
            framer: self.session.receiver.into_framer(),
            format: *self.session.output.format(),
            r2t: self.session.r2t,
            class_named: self.placement.class_named,
            demand,
            home: self.placement.home.filter(|_| reason.keeps_home()),
        })
    }

    /// Adds the connection to a core whose driver has adopted the stream as `socket`.
    pub(crate) fn take_over(
        handover: Handover,
        socket: SocketId,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Self {
        let mut connection = Self::new(socket, handover.ends, handover.permit, core, cx.now);
        connection.leave_fresh(core);
        connection.enter(ConnectionState::Live, core);
        // Decided anew, because the rules may have changed during the move.
        let (rules, from) = (core.shared.rules(), connection.peer.ip());
        let decision = handover.controller.decide_from(&rules, from);
        connection.access.rights = decision.rights();
        connection.owner = Owner::Io(handover.controller);
        connection.access.subsystem = handover.subsystem;
        connection.assign_token_queues(core);
        let session = &mut connection.session;
        session.connected = true;
        session.commands.accept(handover.terms);
        session.receiver = Receiver::new(handover.framer);
        session.r2t = handover.r2t;
        if !mutation::active(Mutation::MoveForgetsDigests) {
            session.output.set_format(handover.format);
        }
        connection.placement.demand = handover.demand;
        connection.placement.home = handover.home;
        core.switch.load[handover.class] += handover.demand.load();
        let named = handover.class_named.then_some(handover.class);
        connection.set_class(named, core, cx);
        connection.set_purpose(Purpose::Data, core);
        drop(handover.counted);
        connection
    }
}

/// Kind of the operation that releases a socket.
pub(super) const RELEASE: u8 = 4;

impl PollGroup {
    /// Periodically clears the loads of queues that have become silent.
    pub(super) fn forget_silent(&mut self, now: Time) {
        if now < self.core.switch.forget_at {
            return;
        }
        self.core.switch.forget_at = now + LOAD_RESET;
        if !self.core.switch.is_loaded() {
            return;
        }
        for (_, connection) in self.connections.iter_mut() {
            if let Some(class) = connection.session.output.class()
                && connection.placement.demand.is_stale(now)
            {
                self.core.switch.load[class] -= connection.placement.demand.forget();
                self.core.touch();
            }
        }
    }

    /// Finds queues that are better placed on other cores; once per period, while there is work.
    pub(super) fn steer(&mut self, now: Time) {
        let active = self.core.shared.threads.active();
        let here = self.core.index;
        let due = now >= self.core.switch.steering.next() && !self.departs();
        if !due || active < 2 || here >= active {
            return;
        }
        self.look_around(active, now);
        let knobs = self.core.switch.knobs();
        let settled = knobs.application_steering.hysteresis == Hysteresis::Settled;
        let has_homes = settled && knobs.queue_affinity;
        let Steering {
            leaving,
            loads,
            recent,
            queues,
            ..
        } = &mut self.steering;
        let steering = &mut self.core.switch.steering;
        for &Move { id, to, .. } in steering.step(now, loads, queues) {
            let (key, to) = (SlabKey::from_tag(id), to.0 as usize);
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            let Some(class) = connection.session.output.class() else {
                continue;
            };
            let load = connection.placement.demand.load();
            if settled && !is_worth_it(class, load, here, to, loads) {
                continue;
            }
            // Other gathering load may have left the destination, or may be this queue's own
            // earlier load.
            let is_new = now.since(connection.deadlines.opened) < AFFINITY_DWELL;
            let at_home = has_homes && home_of(connection) == Some(here) && gathers(class);
            if at_home && (is_new || !any_gathers(&recent[to])) {
                continue;
            }
            loads[here][class] = loads[here][class].saturating_sub(load);
            loads[to][class] += load;
            let reason = MoveReason::Steered;
            connection.plan_move(PlannedMove { to, reason });
            leaving.push((key, now + MOVE_PATIENCE));
        }
        if has_homes && affinity::contend(recent) {
            self.send_home(now);
        }
    }

    /// Publishes the load of this core, and reads the loads of the other cores.
    fn look_around(&mut self, active: usize, now: Time) {
        let here = self.core.index;
        let shared = &self.core.shared;
        let Steering {
            loads,
            recent,
            queues,
            ..
        } = &mut self.steering;
        shared.loads.of(here).publish(now, &self.core.switch.load);
        loads.clear();
        // An unused thread has no load and would appear to be the best destination.
        let in_use = shared.loads.iter().take(active);
        loads.extend(in_use.map(|core| core.load(now)));
        queues.clear();
        let mut asked = PerClass::default();
        let core = CoreId(u32::try_from(here).expect("a machine has fewer cores"));
        let allowed = CoreSet::first(loads.len());
        // Without gathering load on any core nothing moves, so the queues need not be examined.
        if loads.iter().any(any_gathers) {
            for (key, connection) in self.connections.iter() {
                let Some(class) = steered_class(connection) else {
                    continue;
                };
                asked[class] += connection.placement.demand.load_within(AFFINITY_DWELL, now);
                queues.push(SteeredThread {
                    id: key.tag(),
                    class,
                    core,
                    allowed,
                    pinned_by_user: false,
                    load_bytes: connection.placement.demand.load(),
                });
            }
        }
        shared.recent.of(here).publish(now, &asked);
        recent.clear();
        let in_use = shared.recent.iter().take(active);
        recent.extend(in_use.map(|core| core.load(now)));
    }

    /// Moves queues back to their home thread if they have been away for a while and are better
    /// placed there.
    fn send_home(&mut self, now: Time) {
        let here = self.core.index;
        let Steering {
            leaving,
            recent,
            gathered,
            queues,
            ..
        } = &mut self.steering;
        let load =
            |connection: &Connection| connection.placement.demand.load_within(AFFINITY_DWELL, now);
        // Load of gathering classes on this core, by the home of its queue.
        gathered.clear();
        gathered.resize(recent.len(), 0);
        let mut homeless: u64 = 0;
        for thread in queues.iter().filter(|thread| gathers(thread.class)) {
            let Some(connection) = self.connections.get(SlabKey::from_tag(thread.id)) else {
                continue;
            };
            let home = home_of(connection).and_then(|home| gathered.get_mut(home));
            *home.unwrap_or(&mut homeless) += load(connection);
        }
        let all = gathered.iter().sum::<u64>() + homeless;
        for &SteeredThread { id, class, .. } in queues.iter() {
            let key = SlabKey::from_tag(id);
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            // A home thread that is not in use does not count.
            let away = |&home: &usize| home != here && home < recent.len();
            let Some(to) = home_of(connection).filter(away) else {
                continue;
            };
            let stays = connection.placement.moving.is_some()
                || load(connection) == 0
                || now.since(connection.deadlines.opened) < AFFINITY_DWELL;
            let company = all - gathered[to];
            if !stays && affinity::moves_to_arrival_core(class, company, &recent[to], &recent[here])
            {
                let reason = MoveReason::Steered;
                connection.plan_move(PlannedMove { to, reason });
                leaving.push((key, now + MOVE_PATIENCE));
            }
        }
    }

    /// Lets a queue move at its next quiet moment before `until`; otherwise the move is cancelled.
    pub(super) fn send_off(&mut self, key: SlabKey, moving: PlannedMove, until: Time) {
        let connection = self.connections.get_mut(key);
        if let Some(connection) = connection.filter(|connection| is_movable(connection)) {
            connection.plan_move(moving);
            self.steering.leaving.push((key, until));
        }
    }

    /// Releases the queues that are to move and have nothing in flight.
    pub(super) fn run_moves(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(&(key, until)) = self.steering.leaving.get(index) {
            let Some(connection) = self.connections.get_mut(key) else {
                self.steering.leaving.swap_remove(index);
                continue;
            };
            let state = connection.state();
            if state >= ConnectionState::Closing {
                self.steering.leaving.swap_remove(index);
                continue;
            }
            if connection.is_quiet() {
                // From here on, the only possible event for it is its arrival on the other core.
                connection.enter(ConnectionState::Closing, &mut self.core);
                let socket = connection.socket;
                let operation = OpKey::new(self.core.op_namespace, RELEASE, key);
                cx.submit(operation, Op::Release { socket });
            } else if state != ConnectionState::Live || cx.now >= until {
                // A connection that is ending receives again, because it has to see its host close.
                connection.cancel_move(self.core.index);
                connection.arm_receive(&mut self.core, cx);
            } else {
                index += 1;
                continue;
            }
            self.steering.leaving.swap_remove(index);
        }
    }

    /// Handles the release of a moving queue's socket by the driver.
    pub(super) fn released(&mut self, key: SlabKey, stream: Stream, cx: &mut Context<'_>) {
        let moving = self.connections.get(key).and_then(|it| it.placement.moving);
        if moving.is_some_and(|moving| moving.reason == MoveReason::TakenOver) {
            return self.departed(key, stream, cx);
        }
        let Some(connection) = self.connections.remove(key) else {
            return;
        };
        let to = connection
            .placement
            .moving
            .map_or(self.core.index, |moving| moving.to);
        let subsystem = connection.access.subsystem;
        let Some(handover) = connection.hand_over(&mut self.core) else {
            return;
        };
        match handover.reason {
            MoveReason::Dealt | MoveReason::TakenOver => {}
            MoveReason::Steered => self.core.switch.counters.classes[handover.class].moved_out += 1,
            MoveReason::Scaled => self.core.switch.counters.scaled_out += 1,
        }
        self.core.touch();
        // The new core knows whether the subsystem is being removed; this core no longer waits for
        // the queue.
        self.finish_removal(subsystem, cx);
        let handover = Box::new(handover);
        let note = CoreMessage::Arrive { stream, handover };
        if let Err(Message(CoreMessage::Arrive { stream, handover })) =
            self.core.shared.send(to, note)
        {
            self.arrive(stream, *handover, cx);
        }
    }

    /// Takes over a queue from another core.
    pub(super) fn arrive(&mut self, stream: Stream, handover: Handover, cx: &mut Context<'_>) {
        let subsystem = self
            .core
            .namespaces
            .subsystems
            .get(handover.subsystem as usize);
        let known = subsystem.and_then(Option::as_ref);
        let known = known.is_some_and(|subsystem| subsystem.removing.is_none());
        let room = !self.connections.is_full() && cx.driver.has_room_for_socket();
        if self.draining || !known || !room || handover.controller.is_superseded() {
            self.lose(handover, cx.now);
            return;
        }
        let (id, from) = (handover.terms.id, handover.from);
        let (class, reason) = (handover.class, handover.reason);
        let proven = stream.proven().cloned().map(Box::new);
        let socket = cx.driver.adopt(stream);
        let mut connection = Connection::take_over(handover, socket, &mut self.core, cx);
        connection.proven = proven;
        let Ok(key) = self.connections.insert(Box::new(connection)) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.set_key(key);
        match reason {
            MoveReason::Dealt | MoveReason::TakenOver => {}
            MoveReason::Steered => self.core.switch.counters.classes[class].moved_in += 1,
            MoveReason::Scaled => self.core.switch.counters.scaled_in += 1,
        }
        self.core.touch();
        // If the queue was ended during the move, its place is gone, and the end did not find it.
        let here = self.core.index;
        let ours = connection.controller().is_some_and(|controller| {
            let mut queues = controller.queues();
            let place = queues.places.get_mut(&id).filter(|place| **place == from);
            place.is_some_and(|place| {
                place.core = here;
                place.connection = key;
                true
            })
        });
        if ours {
            connection.arm_receive(&mut self.core, cx);
            self.hold_arrived(key);
            self.came();
        } else {
            connection.close(&mut self.core, cx);
        }
    }

    /// Closes the connection of a queue that can go to no core; its host reconnects.
    fn lose(&mut self, handover: Handover, now: Time) {
        let controller = handover.controller.clone();
        let (queue, from) = (handover.terms.id, handover.from);
        drop(handover);
        self.core.leave_queues(&controller, queue, from, now);
        self.core.disarm(&controller);
        self.core.detach(&controller);
    }
}

/// Returns the home thread of a queue, if it has one.
fn home_of(connection: &Connection) -> Option<usize> {
    connection.placement.home.map(usize::from)
}

/// Returns true if queues of this class are placed together.
fn gathers(class: Class) -> bool {
    class.properties().placement == Placement::Gather
}

/// Returns true if the load contains any gathering class.
fn any_gathers(load: &PerClass<u64>) -> bool {
    load.iter()
        .any(|(class, &bytes)| gathers(class) && bytes > 0)
}

/// Returns the class of a queue that may be moved.
fn steered_class(connection: &Connection) -> Option<Class> {
    connection
        .session
        .output
        .class()
        .filter(|_| is_movable(connection))
}

/// Returns true if, for a spreading queue, the new core is no busier with that class (including the
/// queue's own load) than the old core is. The steering rule itself does not check that: between
/// two cores of equal load, the smallest difference would move everything to one.
fn is_worth_it(class: Class, load: u64, from: usize, to: usize, loads: &[PerClass<u64>]) -> bool {
    let spreads = class.properties().placement == Placement::Spread;
    !spreads || loads[to][class].saturating_add(load) <= loads[from][class]
}

/// The thread that accepts connections and decides for all threads.
const FIRST: usize = 0;

/// A queue with at most this part of its thread's load, in thousandths, is small enough for any
/// thread worth sharing with; the search for a smaller one stops.
const SMALL_PERMILLE: u32 = 100;

impl PollGroup {
    /// Returns true while the thread is in use.
    pub(super) fn is_in_use(&self) -> bool {
        self.core.index < self.core.shared.threads.active()
    }

    /// Counts the time of the turn and runs due scaling work; called once per turn, after
    /// everything else.
    pub(super) fn scale(&mut self, cx: &Context<'_>) {
        self.core.work.turned(cx.now, cx.driver.slept());
        if self.draining || self.departs() {
            return;
        }
        self.deal(cx);
        self.end_period(cx.now);
        self.decide(cx.now);
        self.hand_on(cx.now);
    }

    /// Returns the time at which scaling work is due without any other event.
    pub(super) fn scaling_deadline(&self) -> Time {
        if self.draining || self.departs() {
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

    /// Sets new bounds for the number of threads.
    pub(super) fn set_thread_range(&mut self, range: ThreadRange, now: Time) {
        let scaling = &mut self.scaling;
        if scaling.range == range {
            return;
        }
        scaling.range = range;
        if let Some(rule) = &mut scaling.rule {
            rule.set_range(range);
        }
        // The previous load does not describe the period that begins.
        self.core.work.end_period(now);
        self.core.tokens.was_late();
    }

    /// Assigns new queues to threads.
    fn deal(&mut self, cx: &Context<'_>) {
        while let Some(key) = self.core.connections.undealt.pop() {
            let threads = &self.core.shared.threads;
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            // It may have been closed right after Connect; then its socket is gone already.
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

    /// Publishes this thread's load to the first thread, once per period.
    fn end_period(&mut self, now: Time) {
        let ThreadRange { min, max } = self.scaling.range;
        if min == max || now.since(self.core.work.since()) < THREAD_SCALING_PERIOD {
            return;
        }
        let busy_permille = self.core.work.end_period(now);
        // Below this load, the value is not used.
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
        // With the minimum number of threads in use, the first thread may be asleep. A full mailbox
        // wakes it anyway.
        if did.is_pressed() && index != FIRST && threads.active() == min {
            let _ = self.core.shared.send(FIRST, CoreMessage::Look);
        }
    }

    /// Returns the share of the thread's smallest loaded queue in its load, in thousandths; or the
    /// first share found that is small enough.
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

    /// Takes threads into and out of use; runs on the first thread.
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
            // Before other threads can see that it is no longer in use.
            shared.threads.set_successor(thread, into);
        }
        shared.threads.set_active(rule.active(), rule.counters());
        let active = rule.active();
        match step {
            ScalingStep::Grow { thread, part } => {
                tracing::debug!(active, "thread scaling: one thread more");
                self.share(part, thread, now);
            }
            ScalingStep::Balance { thread, part } => self.share(part, thread, now),
            ScalingStep::Shrink { thread, .. } => {
                tracing::debug!(active, "thread scaling: one thread less");
                // A full mailbox wakes it anyway.
                let _ = shared.send(thread, CoreMessage::Look);
            }
        }
    }

    fn share(&mut self, part: LoadShare, to: usize, now: Time) {
        let LoadShare { of, permille } = part;
        if of == self.core.index {
            self.give(permille, to, now);
        } else {
            // If its mailbox is full, nothing changes, and a later period requests it again.
            let _ = self
                .core
                .shared
                .send(of, CoreMessage::Give { permille, to });
        }
    }

    /// Moves a part of this thread's load to another thread.
    pub(super) fn give(&mut self, permille: u32, to: usize, now: Time) {
        if to == self.core.index || self.departs() {
            return;
        }
        let mut queues = std::mem::take(&mut self.scaling.queues);
        queues.clear();
        let movable = self.connections.iter().filter(|(_, c)| is_movable(c));
        // A queue without load counts as 1, so that queues can also be chosen if none has load.
        queues.extend(movable.map(|(key, c)| (key, c.placement.demand.load().max(1))));
        let chosen = choose(&mut queues, permille);
        let reason = MoveReason::Scaled;
        for &(key, _) in &queues[..chosen] {
            self.send_off(key, PlannedMove { to, reason }, now + MOVE_PATIENCE);
        }
        self.scaling.queues = queues;
    }

    /// Moves all queues of an unused thread to its successor.
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
        // A queue without a quiet moment is served for as long as it was held up.
        self.scaling.hands_on_at = now + patience + patience;
        self.scaling.patience = (patience + patience).min(MOVE_PATIENCE_MAX);
    }

    /// Makes an unused thread pass on a newly arrived queue at once.
    pub(super) fn came(&mut self) {
        if !self.is_in_use() {
            self.scaling.hands_on_at = Time::ZERO;
        }
    }
}

/// Returns true if a queue can be moved.
pub(super) fn is_movable(connection: &Connection) -> bool {
    connection.state() == ConnectionState::Live
        && connection.placement.moving.is_none()
        && connection.session.output.class().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_do_not_pile_up_for_a_small_difference() {
        let loads = [(4096, 1 << 20), (0, (1 << 20) - 1), (0, 0)]
            .map(|(latency, throughput)| PerClass::of([latency, throughput]));
        let worth = |to| is_worth_it(Class::Throughput, 1 << 20, 0, to, &loads);
        assert!(!worth(1) && worth(2));
        assert!(is_worth_it(Class::Latency, 4096, 0, 1, &loads));
    }
}
