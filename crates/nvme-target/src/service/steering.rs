//! Application steering of the target: on which core an I/O queue is served.
//! `[blk-switch §3.3, Algorithm 2]`
//!
//! The paper moves the threads that serve receive-side queues. Here a core is one thread for all
//! of its queues and stays where it is, so what moves is the queue, connection and all. Every core
//! decides for its own queues, as every thread does in the paper, from its own loads and those
//! that the others published last (docs/design/decisions/0008-steered-queues.md). A queue leaves at a
//! quiet moment, which it gets by taking no further commands; if that takes too long, it stays.

use crate::limits::MOVE_PATIENCE;
use crate::message::{CoreMessage, Message};
use crate::service::connection::Connection;
use crate::service::connection_state::ConnectionState;
use crate::service::poll_group::PollGroup;
use crate::service::scaling::is_movable;
use crate::session::handover::{Handover, MoveReason, PlannedMove};
use crate::switch::steering::Steering;
use base::units::CoreId;
use base::{SlabKey, Time};
use reactor::{Context, Op, OpKey, Stream};
use switch::affinity;
use switch::application_steering::{Hysteresis, Move, SteeredThread};
use switch::class::Placement;
use switch::limits::{AFFINITY_DWELL, LOAD_RESET};
use switch::{Class, CoreSet, PerClass};

/// Kind of the operation that hands a connection out.
pub(super) const RELEASE: u8 = 4;

impl PollGroup {
    /// Forgets the loads of queues that have fallen silent, now and then.
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

    /// Every period, while there is work: looks which queues are better off elsewhere.
    pub(super) fn steer(&mut self, now: Time) {
        let active = self.core.shared.threads.active();
        let here = self.core.index;
        if now < self.core.switch.steering.next() || active < 2 || here >= active {
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
            // The company that it would go for may be gone, or be itself a moment ago.
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

    /// Says what is asked for here, and finds out what is asked for elsewhere.
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
        // A thread that is not in use has no load, and would look like the best of places.
        let in_use = shared.loads.iter().take(active);
        loads.extend(in_use.map(|core| core.load(now)));
        queues.clear();
        let mut asked = PerClass::default();
        let core = CoreId(u32::try_from(here).expect("a machine has fewer cores"));
        let allowed = CoreSet::first(loads.len());
        // Without such load nowhere, nothing moves, and there is no need to look at every queue.
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

    /// Lets queues go home that have been away for a while, and are better off there.
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
        // What gathers here, by where it is at home.
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
            // A home that is not in use is none.
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

    /// Lets a queue move as soon as it has a quiet moment, which it gets until then or not at all.
    pub(super) fn send_off(&mut self, key: SlabKey, moving: PlannedMove, until: Time) {
        let connection = self.connections.get_mut(key);
        if let Some(connection) = connection.filter(|connection| is_movable(connection)) {
            connection.plan_move(moving);
            self.steering.leaving.push((key, until));
        }
    }

    /// Lets those go that are to move and have nothing under way.
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
                // From here on nothing but its arrival elsewhere can happen to it.
                connection.enter(ConnectionState::Closing, &mut self.core);
                let socket = connection.socket;
                let operation = OpKey::new(self.core.op_namespace, RELEASE, key);
                cx.submit(operation, Op::Release { socket });
            } else if state != ConnectionState::Live || cx.now >= until {
                // One that ends receives again: it has to see its host close.
                connection.cancel_move(self.core.index);
                connection.arm_receive(&mut self.core, cx);
            } else {
                index += 1;
                continue;
            }
            self.steering.leaving.swap_remove(index);
        }
    }

    /// The driver let go of a queue that is to move.
    pub(super) fn released(&mut self, key: SlabKey, stream: Stream, cx: &mut Context<'_>) {
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
            MoveReason::Dealt => {}
            MoveReason::Steered => self.core.switch.counters.classes[handover.class].moved_out += 1,
            MoveReason::Scaled => self.core.switch.counters.scaled_out += 1,
        }
        self.core.touch();
        // Its new core knows whether the subsystem goes; this one waits for it no more.
        self.finish_removal(subsystem, cx);
        let handover = Box::new(handover);
        let note = CoreMessage::Arrive { stream, handover };
        if let Err(Message(CoreMessage::Arrive { stream, handover })) =
            self.core.shared.send(to, note)
        {
            self.arrive(stream, *handover, cx);
        }
    }

    /// A queue comes from another core.
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
        let socket = cx.driver.adopt(stream);
        let connection = Connection::take_over(handover, socket, &mut self.core, cx);
        let Ok(key) = self.connections.insert(Box::new(connection)) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.set_key(key);
        match reason {
            MoveReason::Dealt => {}
            MoveReason::Steered => self.core.switch.counters.classes[class].moved_in += 1,
            MoveReason::Scaled => self.core.switch.counters.scaled_in += 1,
        }
        self.core.touch();
        // If the queue was ended meanwhile, its place is gone, and the end did not find it.
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
            self.came();
        } else {
            connection.close(&mut self.core, cx);
        }
    }

    /// A queue has no place to go: its connection closes, and its host connects again.
    fn lose(&mut self, handover: Handover, now: Time) {
        let controller = handover.controller.clone();
        let (queue, from) = (handover.terms.id, handover.from);
        drop(handover);
        self.core.leave_queues(&controller, queue, from, now);
        self.core.disarm(&controller);
        self.core.detach(&controller);
    }
}

/// The thread that a queue is at home on, if there is one.
fn home_of(connection: &Connection) -> Option<usize> {
    connection.placement.home.map(usize::from)
}

/// Returns true if work of this class is better off with its like.
fn gathers(class: Class) -> bool {
    class.properties().placement == Placement::Gather
}

/// Returns true if any of this load is of such a class.
fn any_gathers(load: &PerClass<u64>) -> bool {
    load.iter()
        .any(|(class, &bytes)| gathers(class) && bytes > 0)
}

/// The class of a queue that may be moved.
fn steered_class(connection: &Connection) -> Option<Class> {
    connection
        .session
        .output
        .class()
        .filter(|_| is_movable(connection))
}

/// Returns true if a queue that spreads finds its new core, with its own load there, no busier with
/// such work than the old one. The rule itself does not look at that: where two cores have the same
/// load, the smallest difference would pile everything up on one.
fn is_worth_it(class: Class, load: u64, from: usize, to: usize, loads: &[PerClass<u64>]) -> bool {
    let spreads = class.properties().placement == Placement::Spread;
    !spreads || loads[to][class].saturating_add(load) <= loads[from][class]
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
