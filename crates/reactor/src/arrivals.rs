//! Arrivals: which sockets to receive from, in which order, and when to sleep, without system calls
//! (docs/design/decisions/0002-hot-sockets.md).
//!
//! [`Arrivals`] holds the hot sockets, which are read directly on every turn because data arrived
//! recently, and the line of sockets with arrivals for which a turn had no receive buffer. It takes
//! the time as input and calls a [`Kernel`]: the driver's, or a model in tests. Invariant: the core
//! never sleeps on arrivals that the ring does not report; no socket is served twice while another
//! one that was readable earlier waits; every socket with an outstanding receive is hot, in line,
//! or watched by the ring.

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

/// Time that a silent socket stays hot.
pub const HOT_WINDOW: Nanos = Nanos::from_micros(200);

/// Time that a core which found more busy sockets than can be hot makes only those hot whose data
/// recurs within [`HOT_WINDOW`]. Long compared with that, so that slots are rarely wasted.
const CROWD_WINDOW: Nanos = Nanos::from_millis(10);

/// Time that a hot socket with bulk data is not read after it was emptied. Reading at once would
/// receive many small pieces, and hold the socket's lock against the very packets that are awaited:
/// with 128 KiB reads that costs a quarter of the throughput. A fast link delivers about 40 KiB in
/// this time. A socket with small receives is always read.
const GATHER_TIME: Nanos = Nanos::from_micros(10);

/// Size from which a receive is bulk; a receive within a payload is bulk, too.
const BULK_BYTES: usize = 32 << 10;

/// Maximum consecutive turns that skip arrivals because something else completed at once.
const UNSEEN_TURNS_MAX: u32 = 8;

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// No receive buffer is free.
    NoBuffer,
    /// No data has arrived.
    Nothing,
    /// The connection has ended, and so has the receive.
    End,
    /// The number of bytes received; true if the receive ended.
    Bytes(usize, bool),
}

/// Calls made by the decisions.
pub trait Kernel {
    /// Returns the socket with this key while it is open.
    fn interest(&self, key: SlabKey) -> Option<&Interest>;
    /// Returns the socket with this key, mutable, while it is open.
    fn interest_mut(&mut self, key: SlabKey) -> Option<&mut Interest>;
    /// Number of free receive buffers.
    fn free_buffers(&self) -> usize;
    /// Receives arrived data on a socket with an outstanding receive, at most `most` bytes.
    fn receive(&mut self, key: SlabKey, most: usize) -> Got;
    /// Sends submitted data on a socket, at most `most` bytes. Returns true if the socket may
    /// accept more of it.
    fn send(&mut self, key: SlabKey, most: usize) -> bool;
    /// Makes the ring report the next arrival on a socket, unless it already does.
    fn watch(&mut self, key: SlabKey);
    /// Returns the current time, later than the start of the turn.
    fn clock(&self) -> Time;
}

/// The step after checking the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverStep {
    /// Sleep until the ring has a completion, or until this time.
    Sleep(Time),
    /// Process the ring without waiting.
    Turn,
}

/// The sockets of a core with arrivals, or waiting for them.
#[derive(Debug)]
pub struct Arrivals {
    pub(crate) hot: Vec<SlabKey>,
    /// Start indices of the next round over the urgent hot sockets and over the rest; rotating, so
    /// that none is always last.
    urgent_start: usize,
    hot_start: usize,
    line: Line,
    paced: Paced,
    /// Time until which there are more busy sockets than can be hot.
    crowded_until: Time,
    /// Number of sockets with urgent arrivals.
    pub(crate) urgent_sockets: usize,
    /// Time until which urgent arrivals count as active.
    urgent_until: Time,
    /// The receive order of classes, and the amount received in the current grant.
    service: ClassScheduler,
    granted_bytes: u64,
    /// Bytes received so far.
    received_bytes: u64,
    /// The ring reported an arrival on a socket that must wait for its turn.
    pub(crate) bulk_arrived: bool,
    /// Turns since the hot sockets were last checked.
    unseen_turns: u32,
    /// The next quantum of non-urgent data is for a socket with a receive quantum.
    bounded_first: bool,
}

impl Arrivals {
    /// Creates the state of a core with at most `sockets` sockets.
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

    /// Receives due data, or prepares to sleep; returns which. `completed`: other completions are
    /// already there.
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
        // Before sleeping, the ring does the check: arming a poll entry also finds earlier
        // arrivals, and saves a system call if there are none.
        if may_wait && !completed && !self.can_receive_line(kernel) {
            self.unseen_turns = 0;
            self.end_grant(now);
            self.watch_hot(kernel);
            return DriverStep::Sleep(until);
        }
        // A core that would sleep but for something that completed at once (usually a send) will
        // sleep on its next turn and check then, unless that happens on every turn.
        let waits = !self.line.is_empty() || !self.paced.is_empty();
        if may_wait && self.unseen_turns < UNSEEN_TURNS_MAX && !waits {
            self.unseen_turns += 1;
            return DriverStep::Turn;
        }
        self.unseen_turns = 0;
        self.receive_arrived(now, kernel);
        DriverStep::Turn
    }

    /// Records a receive submitted on a socket.
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
            // The ring would only report a known arrival.
            self.stand_in_line(key, kernel);
        } else if !hot && !self.heat_up(key, now, kernel) {
            kernel.watch(key);
        }
    }

    /// Continues a send that was submitted, or whose socket has room again: at once, or in turn if
    /// the socket has a quantum.
    #[inline]
    pub fn sends(&mut self, key: SlabKey, kernel: &mut impl Kernel) {
        let interest = kernel.interest(key);
        if interest.is_some_and(|socket| socket.queue() == ArrivalQueue::Bounded) {
            self.paced.send(key);
        } else {
            kernel.send(key, usize::MAX);
        }
    }

    /// Limits each receive on a socket to `quantum` bytes from now on, and each turn to one such
    /// socket; `usize::MAX` for no quantum.
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

    /// Handles the ring's report of an arrival on a socket.
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
            // Nothing to receive after all.
            wait_for_arrival(key, kernel);
        }
    }

    /// Records that a socket is closing: nothing more is received on it.
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

    /// Queues a socket to be closed in its [turn](Self::take_close): closing takes the kernel as
    /// long as a send, and a disconnected host may have a hundred sockets.
    pub fn close_in_turn(&mut self, key: SlabKey) {
        self.paced.close(key);
    }

    /// Returns the next socket to close now, or `None`: one per turn, and more while more than
    /// [`CLOSES_WAITING_MAX`](crate::limits::CLOSES_WAITING_MAX) wait. Call it after each turn
    /// until it returns `None`.
    #[inline]
    pub fn take_close(&mut self) -> Option<SlabKey> {
        self.paced.take_close()
    }

    /// Records that a socket was removed.
    pub fn closed(&mut self, socket: &Interest) {
        self.urgent_sockets -= usize::from(socket.is_urgent());
    }

    /// Sets the class of a socket's arrivals.
    pub fn set_class(&mut self, socket: &mut Interest, class: Class, now: Time) {
        self.urgent_sockets -= usize::from(socket.is_urgent());
        socket.class = class;
        if socket.is_urgent() {
            self.urgent_sockets += 1;
            self.urgent_until = now + LOAD_RESET;
        }
    }

    /// Sets the rules of the receive order of classes.
    pub fn set_service(&mut self, rules: &class_scheduler::ClassSchedulerRules) {
        self.service.reconfigure(*rules);
    }

    /// Returns the receive counters by class.
    #[must_use]
    pub fn service_counters(&self) -> &class_scheduler::ClassSchedulerCounters {
        self.service.counters()
    }

    /// Receives on a hot socket, unless waiting for more of a payload pays off.
    fn poll_receive(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) -> bool {
        let gathers = kernel.interest(key).is_some_and(|socket| {
            let direct = socket.wanted == Wanted::Payload;
            (direct || socket.bulk) && now.since(socket.drained) < GATHER_TIME
        });
        !gathers && self.try_receive(key, now, kernel)
    }

    /// Receives arrived data on a socket. Returns true if the receive ended.
    fn try_receive(&mut self, key: SlabKey, now: Time, kernel: &mut impl Kernel) -> bool {
        let Some(socket) = kernel.interest(key).filter(|socket| socket.receives()) else {
            return false;
        };
        let urgent = socket.is_urgent();
        // A receive into a payload's destination is its owner's only work on this turn.
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

    /// Receives arrived data: first on the sockets in line, then on the hot ones; silent sockets
    /// cool down.
    fn receive_arrived(&mut self, now: Time, kernel: &mut impl Kernel) {
        let prioritises = self.prioritises(now);
        if prioritises {
            self.receive_in_order(now, kernel);
        } else {
            // Everything is received now: no later check is scheduled.
            self.bulk_arrived = false;
            let free = kernel.free_buffers();
            // The last buffer alternates between sockets with and without a quantum.
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
            // A socket without an outstanding receive also cools down: it would occupy the slot.
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

    /// Returns true if this turn skips sockets with a quantum and closes; `brought` is true if
    /// other sockets received data.
    fn passes_bounded(&mut self, brought: bool) -> bool {
        self.paced.passes(brought, !self.line.bounded.is_empty())
    }

    /// Does one piece of the paced work. Returns false if there was none, or if a turn that
    /// `may_receive` should receive on a socket with a quantum instead.
    fn go_on(&mut self, may_receive: bool, kernel: &mut impl Kernel) -> bool {
        let receives_wait =
            may_receive && !self.line.bounded.is_empty() && kernel.free_buffers() > 0;
        self.paced.go_on(receives_wait, kernel)
    }

    /// Receives on the sockets in line, until `most` have received data or no receive buffer is
    /// left. Returns how many have.
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
    /// of these sockets, so they would not wake a sleeping core.
    fn can_receive_line(&self, kernel: &impl Kernel) -> bool {
        let waits = !self.line.is_empty() && kernel.free_buffers() > 0;
        let goes_on = !self.paced.is_empty();
        (waits && !mutation::active(Mutation::LineForgotten))
            || (goes_on && !mutation::active(Mutation::PieceForgotten))
    }

    /// Puts a socket with arrivals at the end of the line. The ring does not watch it: it would
    /// report at once, and the core could not sleep while the owner keeps the receive buffers.
    fn stand_in_line(&mut self, key: SlabKey, kernel: &mut impl Kernel) {
        let Some(socket) = kernel.interest_mut(key) else {
            return;
        };
        if socket.receives() && !std::mem::replace(&mut socket.in_line, true) {
            let queue = socket.queue();
            self.line.of(queue).push_back(key);
        }
    }

    /// Moves the hot sockets behind those left in line: read on every turn, they would be served
    /// repeatedly while other sockets wait. If the turn `prioritises`, hot sockets of an empty
    /// queue are still read.
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

    /// Returns true while urgent arrivals have priority: there are urgent sockets, and one of them
    /// received data recently.
    pub(crate) fn prioritises(&self, now: Time) -> bool {
        self.urgent_sockets > 0
            && now < self.urgent_until
            && self.service.rules().order == Order::Strict
    }

    /// Receives urgent data, or, if there is none or a floor is owed, a quantum of the rest. A
    /// grant lasts until the next check, because received data is processed meanwhile.
    fn receive_in_order(&mut self, now: Time, kernel: &mut impl Kernel) {
        self.end_grant(now);
        let before = self.received_bytes;
        // The last buffer is for the rest, to which a floor may owe service.
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

    /// Receives on one non-urgent socket. Sockets with and without a quantum alternate; only those
    /// without one if no `bounded` receive is due. Returns how many received data.
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

    /// Ends the current grant, which counts if any data was received.
    fn end_grant(&mut self, now: Time) {
        let bytes = std::mem::take(&mut self.granted_bytes);
        if bytes > 0 {
            self.service.served(now, bytes);
        }
    }

    /// Reads each hot socket once, those that are `urgent`, those that are not, or all (`None`),
    /// until `most` have received data or no receive buffer is left. Returns how many have.
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
        // Each kind has its own start: with a shared one, a round over one kind would skip sockets
        // of the other again and again.
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
                // The next round starts here.
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

    /// Makes a socket hot if there is a slot. If more sockets are busy than can be hot, only
    /// sockets with recurring data become hot: the rest would waste the slots.
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

    /// Removes the hot socket at `index` and makes the ring watch it.
    fn cool_down(&mut self, index: usize, kernel: &mut impl Kernel) {
        let key = self.hot.swap_remove(index);
        if let Some(socket) = kernel.interest_mut(key) {
            socket.hot = false;
            if !mutation::active(Mutation::ColdSocketForgotten) {
                wait_for_arrival(key, kernel);
            }
        }
    }

    /// Makes the ring watch every hot socket with an outstanding receive before sleeping.
    fn watch_hot(&self, kernel: &mut impl Kernel) {
        for &key in &self.hot {
            let waits = |s: &Interest| s.receives() && !s.in_line;
            if kernel.interest(key).is_some_and(waits) {
                kernel.watch(key);
            }
        }
    }
}

/// Makes the ring watch a socket with an outstanding receive that is neither hot nor in line.
fn wait_for_arrival(key: SlabKey, kernel: &mut impl Kernel) {
    let waits = |s: &Interest| s.receives() && !s.hot && !s.in_line;
    if kernel.interest(key).is_some_and(waits) {
        kernel.watch(key);
    }
}

#[cfg(test)]
mod tests;
