//! Arrivals: the sockets to receive from, their order, and the decision to sleep, without system
//! calls (docs/design/decisions/0002-hot-sockets.md).
//!
//! [`Arrivals`] has the hot sockets, which are read directly on every turn because data came
//! lately, and the line of those on which something arrived and that a turn had no receive buffer
//! for. It is told the time, and calls a [`Kernel`]: the driver's, or that of the tests, where
//! nothing but these decisions is real. Must never: let the core sleep while something has arrived
//! that the ring does not tell of; serve a socket twice while another one that was readable before
//! waits; leave a socket that is waited for without a place among the hot ones, in the line, or
//! with the ring.

mod interest;
mod line;
mod paced;

pub use interest::{Interest, Wanted};

use crate::driver::Wait;
use crate::limits::HOT_SOCKETS_MAX;
use base::mutation::{self, Mutation};
use base::{Nanos, SlabKey, Time};
use line::{ArrivalQueue, Line};
use paced::Paced;
use switch::class_scheduler::{self, Order};
use switch::limits::LOAD_RESET;
use switch::{Class, ClassScheduler, Knobs, PerClass};

/// Time for which a silent socket stays hot.
pub const HOT_WINDOW: Nanos = Nanos::from_micros(200);

/// Time for which a core that found more busy sockets than can be hot makes only those hot on which
/// data came again within [`HOT_WINDOW`]. Long beside that, so that places are rarely taken in
/// vain.
const CROWD_WINDOW: Nanos = Nanos::from_millis(10);

/// Time for which a hot socket that brings bulk is left alone after it was emptied. Asking at once
/// would take what comes in many small pieces, and hold the socket's lock against the very packets
/// that are waited for: on 128 KiB reads that costs a quarter of the throughput. In this time a
/// fast link brings some 40 KiB. A socket that brings little at a time is never left alone.
const GATHER_TIME: Nanos = Nanos::from_micros(10);

/// Size from which on a receive is bulk; one into the middle of a payload is, too.
const BULK_BYTES: usize = 32 << 10;

/// Turns in a row that may pass by what has arrived, because something else completed at once.
const UNSEEN_TURNS_MAX: u32 = 8;

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// No receive buffer is free.
    NoBuffer,
    /// No data has arrived.
    Nothing,
    /// The connection is over, and so is the receive.
    End,
    /// The bytes received, and true if that was all: the receive is over.
    Bytes(usize, bool),
}

/// Calls that the decisions make.
pub trait Kernel {
    /// The socket with this key, while it is open.
    fn interest(&self, key: SlabKey) -> Option<&Interest>;
    /// The same, to change it.
    fn interest_mut(&mut self, key: SlabKey) -> Option<&mut Interest>;
    /// Receive buffers that are free.
    fn free_buffers(&self) -> usize;
    /// Receives what has arrived on a socket on which that is wanted, in bytes at most `most`.
    fn receive(&mut self, key: SlabKey, most: usize) -> Got;
    /// Sends what was submitted on a socket, in bytes at most `most`. Returns true if more is left
    /// that the socket may take.
    fn send(&mut self, key: SlabKey, most: usize) -> bool;
    /// Lets the ring tell once when something arrives on a socket, if it does not yet.
    fn watch(&mut self, key: SlabKey);
    /// Returns the time now: later than when the turn began.
    fn clock(&self) -> Time;
}

/// The step that follows a look at the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverStep {
    /// Sleep until the ring has something, or until then.
    Sleep(Time),
    /// The ring does its work, without a wait.
    Turn,
}

/// The sockets of a core on which something arrives, or may.
#[derive(Debug)]
pub struct Arrivals {
    pub(crate) hot: Vec<SlabKey>,
    /// Start of the next round over the hot sockets, so that none is always last: one over those
    /// that are urgent, and any other.
    urgent_start: usize,
    hot_start: usize,
    line: Line,
    paced: Paced,
    /// Time until which more sockets count as busy than can be hot.
    crowded_until: Time,
    /// Number of sockets with arrivals that go before those of others.
    pub(crate) urgent_sockets: usize,
    /// Time until which such arrivals count as active.
    urgent_until: Time,
    /// The order in which classes are received, and what the grant under way has brought.
    service: ClassScheduler,
    granted_bytes: u64,
    /// Bytes received so far.
    received_bytes: u64,
    /// The ring told of an arrival on a socket that has to wait for its turn.
    pub(crate) bulk_arrived: bool,
    /// Turns since the hot sockets were looked at.
    unseen_turns: u32,
    /// The next quantum of what may wait is for a socket with a quantum of its own.
    bounded_first: bool,
}

impl Arrivals {
    /// Makes the decisions of a core with at most `sockets` sockets.
    #[must_use]
    pub fn new(sockets: usize) -> Self {
        Self {
            hot: Vec::with_capacity(HOT_SOCKETS_MAX),
            urgent_start: 0,
            hot_start: 0,
            line: Line::with_capacity(sockets),
            paced: Paced::with_capacity(sockets),
            crowded_until: Time::ZERO,
            urgent_sockets: 0,
            urgent_until: Time::ZERO,
            service: ClassScheduler::new(Knobs::default().service()),
            granted_bytes: 0,
            received_bytes: 0,
            bulk_arrived: false,
            unseen_turns: 0,
            bounded_first: false,
        }
    }

    /// Receives what is due, or gets everything ready for a sleep; says which. `completed`: there
    /// is something to hand out already.
    #[inline]
    pub fn turn(
        &mut self,
        wait: Wait,
        now: Time,
        completed: bool,
        kernel: &mut impl Kernel,
    ) -> DriverStep {
        let until = match wait {
            Wait::Until(deadline) if deadline > now => deadline,
            _ => Time::ZERO,
        };
        let may_wait = until > Time::ZERO && !self.bulk_arrived;
        // A core that is about to sleep lets the ring look: arming a poll entry finds what has
        // arrived, too, and when nothing has, this spares a system call.
        if may_wait && !completed && !self.can_receive_line(kernel) {
            self.unseen_turns = 0;
            self.end_grant(now);
            self.watch_hot(kernel);
            return DriverStep::Sleep(until);
        }
        // A core that would sleep but for what completed at once (a send, as a rule) will do so on
        // its next turn, and looks then; unless there is always something.
        let waits = !self.line.is_empty() || !self.paced.is_empty();
        if may_wait && self.unseen_turns < UNSEEN_TURNS_MAX && !waits {
            self.unseen_turns += 1;
            return DriverStep::Turn;
        }
        self.unseen_turns = 0;
        self.receive_arrived(now, kernel);
        DriverStep::Turn
    }

    /// Takes note of a receive that was submitted on a socket.
    #[inline]
    pub fn wanted(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) {
        let Some(socket) = kernel.interest(key) else {
            return;
        };
        let (hot, more) = (
            socket.hot,
            socket.cut && socket.queue() == ArrivalQueue::Bounded,
        );
        if more {
            // The ring would only say what is known.
            self.stand_in_line(key, kernel);
        } else if !hot && !self.heat_up(key, now, kernel) {
            kernel.watch(key);
        }
    }

    /// A send was submitted on a socket, or the socket has room for more of one: it goes on at once,
    /// or in its turn where the socket has a quantum.
    #[inline]
    pub fn sends(&mut self, key: SlabKey, kernel: &mut impl Kernel) {
        let interest = kernel.interest(key);
        if interest.is_some_and(|socket| socket.queue() == ArrivalQueue::Bounded) {
            self.paced.send(key);
        } else {
            kernel.send(key, usize::MAX);
        }
    }

    /// A receive on a socket takes `quantum` bytes at most from now on, and a turn receives from
    /// one such socket at most; `usize::MAX` is no quantum.
    pub fn set_quantum(&mut self, key: SlabKey, quantum: usize, kernel: &mut impl Kernel) {
        let Some(socket) = kernel.interest_mut(key) else {
            return;
        };
        socket.quantum = quantum;
        let in_line = std::mem::take(&mut socket.in_line);
        let cools = socket.hot && socket.queue() == ArrivalQueue::Bounded;
        if in_line {
            self.line.remove(key);
            self.stand_in_line(key, kernel);
        }
        if cools && let Some(index) = self.hot.iter().position(|&hot| hot == key) {
            self.cool_down(index, kernel);
        }
    }

    /// The ring tells that something arrived on a socket.
    pub fn arrived(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) {
        let Some(socket) = kernel.interest(key) else {
            return;
        };
        let others_first = match socket.queue() {
            ArrivalQueue::Urgent => !self.line.urgent.is_empty(),
            ArrivalQueue::Others => self.prioritises(now) || !self.line.unbounded_is_empty(),
            ArrivalQueue::Bounded => true,
        };
        if others_first || kernel.free_buffers() == 0 {
            self.stand_in_line(key, kernel);
        } else if !self.try_receive(key, now, kernel) {
            // A false alarm.
            wait_for_arrival(key, kernel);
        }
    }

    /// A socket closes: nothing is received on it any more.
    pub fn closes(&mut self, key: SlabKey, kernel: &mut impl Kernel) {
        let Some(socket) = kernel.interest_mut(key) else {
            return;
        };
        socket.wanted = Wanted::Nothing;
        socket.closing = true;
        socket.hot = false;
        self.paced.ends(key);
        if std::mem::take(&mut socket.in_line) {
            self.line.remove(key);
        }
        if let Some(index) = self.hot.iter().position(|&hot| hot == key) {
            self.hot.swap_remove(index);
        }
    }

    /// A socket is to be closed when its [turn](Self::take_close) has come: to close one takes the
    /// kernel as long as to send, and a host that is gone had a hundred.
    pub fn close_in_turn(&mut self, key: SlabKey) {
        self.paced.close(key);
    }

    /// Returns the next socket that is to be closed now, if there is one: one for a turn, and more
    /// while more than [`CLOSES_WAITING_MAX`](crate::limits::CLOSES_WAITING_MAX) wait. To be asked
    /// after each turn, until there is none.
    #[inline]
    pub fn take_close(&mut self) -> Option<SlabKey> {
        self.paced.take_close()
    }

    /// A socket is no more.
    pub fn closed(&mut self, socket: &Interest) {
        self.urgent_sockets -= usize::from(socket.is_urgent());
    }

    /// Sets the class of what arrives on a socket.
    pub fn set_class(&mut self, socket: &mut Interest, class: Class, now: Time) {
        self.urgent_sockets -= usize::from(socket.is_urgent());
        socket.class = class;
        if socket.is_urgent() {
            self.urgent_sockets += 1;
            self.urgent_until = now + LOAD_RESET;
        }
    }

    /// Classes are received by these rules from now on.
    pub fn set_service(&mut self, rules: &class_scheduler::ClassSchedulerRules) {
        self.service.reconfigure(*rules);
    }

    /// Returns counters of what was received of each class.
    #[must_use]
    pub fn service_counters(&self) -> &class_scheduler::ClassSchedulerCounters {
        self.service.counters()
    }

    /// Receives on a hot socket, unless it pays to let more of a payload arrive first.
    fn poll_receive(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) -> bool {
        let gathers = kernel.interest(key).is_some_and(|socket| {
            let direct = socket.wanted == Wanted::Payload;
            (direct || socket.bulk) && now.since(socket.drained) < GATHER_TIME
        });
        !gathers && self.try_receive(key, now, kernel)
    }

    /// Receives what has arrived on a socket. Returns whether the receive ended.
    fn try_receive(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) -> bool {
        let Some(socket) = kernel.interest(key).filter(|socket| socket.receives()) else {
            return false;
        };
        let urgent = socket.is_urgent();
        // A payload that arrives where it belongs is its owner's only work on this turn.
        let own = match socket.wanted {
            Wanted::Payload => usize::MAX,
            Wanted::Anything | Wanted::Nothing => socket.quantum,
        };
        let most = if !urgent && self.prioritises(now) {
            let quantum = usize::try_from(self.service.rules().quantum_bytes);
            quantum.unwrap_or(usize::MAX).min(own)
        } else {
            own
        };
        let got = kernel.receive(key, most);
        let drained = match got {
            Got::NoBuffer => return false,
            Got::Nothing => now,
            Got::End => return true,
            Got::Bytes(_, true) => kernel.clock(),
            Got::Bytes(_, false) => Time::ZERO,
        };
        let Some(socket) = kernel.interest_mut(key) else {
            return false;
        };
        socket.drained = drained;
        socket.cut = matches!(got, Got::Bytes(_, false));
        let Got::Bytes(bytes, _) = got else {
            return false;
        };
        socket.recurs = now.since(socket.last_arrival) <= HOT_WINDOW;
        socket.last_arrival = now;
        socket.bulk = bytes >= BULK_BYTES;
        self.received_bytes += bytes as u64;
        if urgent {
            self.urgent_until = now + LOAD_RESET;
        }
        true
    }

    /// Receives what has arrived: first from the sockets that wait in line, then from the hot ones,
    /// of which the silent cool down.
    fn receive_arrived(&mut self, now: Time, kernel: &mut impl Kernel) {
        let prioritises = self.prioritises(now);
        if prioritises {
            self.receive_in_order(now, kernel);
        } else {
            // Nothing is left for a later look, which would never come.
            self.bulk_arrived = false;
            let free = kernel.free_buffers();
            // The last buffer is for both in turns.
            let keeps = !self.line.bounded.is_empty() && (free > 1 || self.paced.was_passed());
            let before = free.saturating_sub(usize::from(keeps));
            let mut most = before;
            most -= self.receive_line(ArrivalQueue::Urgent, most, now, kernel);
            most -= self.receive_line(ArrivalQueue::Others, most, now, kernel);
            if self.line.unbounded_is_empty() {
                most -= self.receive_hot(most, None, now, kernel);
            }
            if !self.passes_bounded(most < before) && !self.go_on(true, kernel) {
                self.receive_line(ArrivalQueue::Bounded, 1, now, kernel);
            }
        }
        self.join_line(prioritises, now, kernel);
        let mut index = 0;
        while index < self.hot.len() {
            let key = self.hot[index];
            // One without an outstanding receive cools down, too: it would hold the place.
            let socket = kernel.interest(key);
            let cold =
                socket.is_none_or(|s| now.since(s.last_arrival.max(s.hot_since)) > HOT_WINDOW);
            if cold {
                self.cool_down(index, kernel);
            } else {
                index += 1;
            }
        }
    }

    /// Returns true if this turn, which has `brought` something from other sockets or not, passes by
    /// those with a quantum, and those that close.
    fn passes_bounded(&mut self, brought: bool) -> bool {
        self.paced.passes(brought, !self.line.bounded.is_empty())
    }

    /// Does one piece of what is paced. Returns false if there was none, or if a turn that
    /// `may_receive` receives from a socket with a quantum instead.
    fn go_on(&mut self, may_receive: bool, kernel: &mut impl Kernel) -> bool {
        let receives_wait =
            may_receive && !self.line.bounded.is_empty() && kernel.free_buffers() > 0;
        self.paced.go_on(receives_wait, kernel)
    }

    /// Receives from the sockets in line, until `most` have brought something or no receive buffer
    /// is left. Returns how many have.
    fn receive_line(
        &mut self,
        queue: ArrivalQueue,
        most: usize,
        now: Time,
        kernel: &mut impl Kernel,
    ) -> usize {
        let mut received = 0;
        for _ in 0..self.line.of(queue).len() {
            if received == most || kernel.free_buffers() == 0 {
                break;
            }
            let Some(key) = self.line.of(queue).pop_front() else {
                break;
            };
            let Some(socket) = kernel.interest_mut(key) else {
                continue;
            };
            socket.in_line = false;
            let brought = if socket.hot {
                self.poll_receive(key, now, kernel)
            } else {
                self.try_receive(key, now, kernel)
            };
            if brought {
                received += 1;
            } else {
                wait_for_arrival(key, kernel);
            }
        }
        received
    }

    /// Returns true while sockets wait in line and a receive buffer is free. The ring watches none
    /// of these sockets, so a core that slept would not be woken for them.
    fn can_receive_line(&self, kernel: &impl Kernel) -> bool {
        let waits = !self.line.is_empty() && kernel.free_buffers() > 0;
        let goes_on = !self.paced.is_empty();
        (waits && !mutation::active(Mutation::LineForgotten))
            || (goes_on && !mutation::active(Mutation::PieceForgotten))
    }

    /// Puts a socket on which something arrived at the end of the line. The ring is not asked
    /// again: it would say so at once, and the core could not sleep while its owner keeps the
    /// receive buffers.
    fn stand_in_line(&mut self, key: SlabKey, kernel: &mut impl Kernel) {
        let Some(socket) = kernel.interest_mut(key) else {
            return;
        };
        if socket.receives() && !std::mem::replace(&mut socket.in_line, true) {
            let queue = socket.queue();
            self.line.of(queue).push_back(key);
        }
    }

    /// Lets the hot sockets stand behind those that are left in line: read on every turn, they
    /// would be served again and again while others wait. Where the turn `prioritises`, those of a
    /// queue that is empty are still read.
    fn join_line(&mut self, prioritises: bool, now: Time, kernel: &mut impl Kernel) {
        if self.line.unbounded_is_empty() {
            return;
        }
        self.crowded_until = now + CROWD_WINDOW;
        for index in 0..self.hot.len() {
            let key = self.hot[index];
            let queue = kernel.interest(key).map(Interest::queue);
            let joins = queue.is_some_and(|queue| {
                let passed_by = !prioritises && queue != ArrivalQueue::Bounded;
                passed_by || !self.line.of(queue).is_empty()
            });
            if joins {
                self.stand_in_line(key, kernel);
            }
        }
    }

    /// Returns true while some arrivals go before others: there is a queue of such, and something
    /// came on one lately.
    pub(crate) fn prioritises(&self, now: Time) -> bool {
        self.urgent_sockets > 0
            && now < self.urgent_until
            && self.service.rules().order == Order::Strict
    }

    /// Reads what must not wait, or, where that brings nothing or a floor is owed, a quantum of the
    /// rest. A grant lasts until the next look: what was received is worked on meanwhile.
    fn receive_in_order(&mut self, now: Time, kernel: &mut impl Kernel) {
        self.end_grant(now);
        let before = self.received_bytes;
        // The last buffer is for the rest, which may be owed something.
        let most = kernel.free_buffers().saturating_sub(1);
        let received = self.receive_line(ArrivalQueue::Urgent, most, now, kernel);
        if self.line.urgent.is_empty() {
            self.receive_hot(most - received, Some(true), now, kernel);
        }
        let urgent_bytes = self.received_bytes - before;
        let passes = self.passes_bounded(urgent_bytes > 0);
        let may_wait = |key: &SlabKey| {
            let socket = kernel.interest(*key);
            socket.is_some_and(|s| !s.is_urgent() && s.receives())
        };
        let in_line = !self.line.others.is_empty() || !self.line.bounded.is_empty();
        let rest_waits = in_line || self.hot.iter().any(may_wait);
        self.bulk_arrived &= rest_waits;
        let backlog = PerClass::from_fn(|class| match class.properties().may_wait {
            false => urgent_bytes,
            // The amount is unknown before it is received.
            true if rest_waits => u64::MAX,
            true => 0,
        });
        self.granted_bytes = urgent_bytes;
        let grant = self.service.next(now, &backlog);
        let granted = grant.is_none_or(|grant| grant.class.properties().may_wait);
        let bounded = !passes && !self.go_on(granted, kernel);
        if granted {
            let before = self.received_bytes;
            let received = self.receive_rest(bounded, now, kernel);
            self.bulk_arrived = received > 0;
            self.granted_bytes = self.received_bytes - before;
        }
    }

    /// Receives from one socket with arrivals that may wait. Those with a quantum of their own and the
    /// others take turns; only others where no `bounded` one is due. Returns how many have brought
    /// something.
    fn receive_rest(&mut self, bounded: bool, now: Time, kernel: &mut impl Kernel) -> usize {
        let bounded_first = self.bounded_first;
        self.bounded_first ^= bounded;
        let mut received = 0;
        if bounded && bounded_first {
            received = self.receive_line(ArrivalQueue::Bounded, 1, now, kernel);
        }
        if received == 0 {
            received = self.receive_line(ArrivalQueue::Others, 1, now, kernel);
        }
        if received == 0 && self.line.unbounded_is_empty() {
            received = self.receive_hot(1, Some(false), now, kernel);
        }
        if received == 0 && bounded && !bounded_first {
            received = self.receive_line(ArrivalQueue::Bounded, 1, now, kernel);
        }
        received
    }

    /// The grant under way is over; it counts if it brought anything.
    fn end_grant(&mut self, now: Time) {
        let bytes = std::mem::take(&mut self.granted_bytes);
        if bytes > 0 {
            self.service.served(now, bytes);
        }
    }

    /// Reads the hot sockets once each, those that are `urgent` or not, or all, until `most` have
    /// brought something or no receive buffer is left. Returns how many have.
    fn receive_hot(
        &mut self,
        most: usize,
        urgent: Option<bool>,
        now: Time,
        kernel: &mut impl Kernel,
    ) -> usize {
        let count = self.hot.len();
        if count == 0 || most == 0 {
            return 0;
        }
        // A round over some moves nothing on for the others: they would be passed again and again.
        let start = *self.start_of(urgent);
        let start = if start < count { start } else { 0 };
        let mut next = start + 1;
        let mut received = 0;
        for index in (start..count).chain(0..start) {
            let key = self.hot[index];
            let meant = |socket: &Interest| urgent.is_none_or(|u| u == socket.is_urgent());
            if !kernel.interest(key).is_some_and(meant) {
                continue;
            }
            if self.poll_receive(key, now, kernel) {
                received += 1;
                if received == most {
                    next = index + 1;
                    break;
                }
            } else if kernel.free_buffers() == 0 {
                // The next round begins here.
                next = index;
                break;
            }
        }
        *self.start_of(urgent) = next;
        received
    }

    fn start_of(&mut self, urgent: Option<bool>) -> &mut usize {
        if urgent == Some(true) {
            &mut self.urgent_start
        } else {
            &mut self.hot_start
        }
    }

    /// Makes a socket hot, if there is room. Where more sockets are busy than can be hot, only
    /// those are on which data comes again soon: others would take the places for nothing.
    fn heat_up(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) -> bool {
        let Some(socket) = kernel.interest_mut(key) else {
            return false;
        };
        if socket.closing || socket.queue() == ArrivalQueue::Bounded {
            return false;
        }
        if !socket.hot && (socket.recurs || now >= self.crowded_until) {
            if self.hot.len() < HOT_SOCKETS_MAX {
                socket.hot = true;
                socket.hot_since = now;
                debug_assert!(!self.hot.contains(&key), "a socket is hot once");
                self.hot.push(key);
            } else {
                self.crowded_until = now + CROWD_WINDOW;
            }
        }
        socket.hot
    }

    /// Takes the hot socket at `index` off the list and lets the ring watch it.
    fn cool_down(&mut self, index: usize, kernel: &mut impl Kernel) {
        let key = self.hot.swap_remove(index);
        if let Some(socket) = kernel.interest_mut(key) {
            socket.hot = false;
            if !mutation::active(Mutation::ColdSocketForgotten) {
                wait_for_arrival(key, kernel);
            }
        }
    }

    /// Before sleeping, the ring watches every socket that waits for something.
    fn watch_hot(&self, kernel: &mut impl Kernel) {
        for &key in &self.hot {
            let waits = |s: &Interest| s.receives() && !s.in_line;
            if kernel.interest(key).is_some_and(waits) {
                kernel.watch(key);
            }
        }
    }
}

/// Lets the ring tell about a socket that waits, is not read directly, and is not in line.
fn wait_for_arrival(key: SlabKey, kernel: &mut impl Kernel) {
    let waits = |s: &Interest| s.receives() && !s.hot && !s.in_line;
    if kernel.interest(key).is_some_and(waits) {
        kernel.watch(key);
    }
}

#[cfg(test)]
mod tests;
