//! The sending half of a host's connection: the caravans, and the commands that wait for room in
//! them.
//!
//! A lane of a switchboard holds commands until its doorbell rings, and limits its caravans by the
//! switch's knobs ([`Pacing`]). Any other connection sends commands as soon as it can.

use crate::command::exchange::{Direction, Exchange};
use crate::command::table::CommandTable;
use crate::limits::H2C_DATA_STEP;
use base::Time;
use block::Operation;
use reactor::{IoSlice, SendList, SendListPool};
use std::collections::VecDeque;
use switch::doorbell::{Decision, DoorbellCounters, Mode, Urgency};
use switch::{CaravanLimits, Class};
use transport::limits::DATA_IOVECS;
use transport::{ListPair, SendQueue};
use wire::tcp::{CapsuleCmd, Role, TermReq};

/// Bytes of data in a caravan that the controller requested by R2T.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requested(u64);

/// The rules by which a lane sends its commands.
#[derive(Clone, Copy, Debug)]
struct Pacing {
    /// Limits of one caravan.
    limits: CaravanLimits,
    class: Class,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) send: SendQueue<Requested>,
    lists: ListPair,
    /// Counters of the caravans sent.
    counters: DoorbellCounters,
    /// `None` if commands are sent at once.
    pacing: Option<Pacing>,
    /// Commands that did not fit into a send, in order.
    pub(super) queue: VecDeque<u16>,
    /// Commands with R2Ts that are not fulfilled.
    pub(super) transfers: VecDeque<u16>,
    /// Commands that were answered while a send still held their data.
    answered: Vec<u16>,
    /// True if a termination request is sent after the current send, and nothing after it.
    last: bool,
}

impl Outgoing {
    pub(super) fn new(depth: u16, lists: SendListPool) -> Self {
        let depth = usize::from(depth);
        Self {
            send: SendQueue::new(Mode::Immediate),
            lists: ListPair::new(lists),
            counters: DoorbellCounters::default(),
            pacing: None,
            queue: VecDeque::with_capacity(depth),
            transfers: VecDeque::with_capacity(depth),
            answered: Vec::with_capacity(depth),
            last: false,
        }
    }

    /// Sets the rules for sending commands of this class; held commands are sent in the next turn.
    pub(super) fn pace(&mut self, mode: Mode, limits: CaravanLimits, class: Class) {
        self.pacing = Some(Pacing { limits, class });
        self.send.doorbell_mut().reconfigure(mode);
    }

    /// Returns true if commands are sent by the rules of a lane.
    #[inline]
    pub(super) const fn is_paced(&self) -> bool {
        self.pacing.is_some()
    }

    /// Number of commands that wait for the doorbell.
    pub(super) const fn waiting(&self) -> u32 {
        self.send.doorbell().waiting().requests
    }

    /// Counters of the doorbell.
    pub(super) const fn counters(&self) -> &DoorbellCounters {
        &self.counters
    }

    /// Makes a command wait for the doorbell; the connection has `occupied` commands including this
    /// one.
    #[inline]
    pub(super) fn join(&mut self, exchange: &Exchange, now: Time, occupied: usize) {
        let Some(Pacing { class, .. }) = self.pacing else {
            return;
        };
        let waiting = self.waiting().saturating_add(1);
        let in_flight = u32::try_from(occupied).map_or(u32::MAX, |n| n.saturating_sub(waiting));
        let urgency = urgency(exchange, class);
        let (bytes, iovecs) = load(exchange);
        let doorbell = self.send.doorbell_mut();
        doorbell.on_request(now, bytes, iovecs, urgency, in_flight);
    }

    /// Returns true if a PDU fits into the filling caravan.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        !self.last && self.send.begin(&mut self.lists) && self.send.has_room_for_pdu()
    }

    /// Counts a command into the filling caravan; false if it does not fit.
    #[inline]
    pub(super) fn load(&mut self, exchange: &Exchange) -> bool {
        let Some(Pacing { limits, .. }) = &self.pacing else {
            return true;
        };
        let load = load(exchange);
        let accepts = self.send.accepts(load, limits);
        if accepts {
            self.send.load(load);
        }
        accepts
    }

    /// Returns the bytes of data requested by R2T that the caravan still has room for: whole steps
    /// of [`H2C_DATA_STEP`], and at least one step if the caravan is empty.
    pub(super) fn room_for_data(&self) -> u32 {
        let Some(Pacing { limits, .. }) = &self.pacing else {
            return u32::MAX;
        };
        let carried = self.send.loaded().bytes + self.send.account().0;
        let room = limits.bytes.saturating_sub(carried);
        let room = u32::try_from(room).unwrap_or(u32::MAX) / H2C_DATA_STEP * H2C_DATA_STEP;
        if carried == 0 {
            room.max(H2C_DATA_STEP)
        } else {
            room
        }
    }

    /// Counts data requested by R2T into the caravan. It may not wait, because the controller holds
    /// buffers for it.
    pub(super) fn load_data(&mut self, bytes: u32) {
        self.send.send_now();
        self.send.account_mut().0 += u64::from(bytes);
    }

    /// Appends bytes of a PDU without payload.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        let room = self.has_room();
        debug_assert!(room, "a connection that is set up sends nothing else");
        self.send.push_bytes(bytes);
    }

    /// Replaces the gathered bytes by a termination request.
    pub(super) fn terminate(&mut self, request: &TermReq, header: &[u8]) {
        let begun = self.send.begin(&mut self.lists);
        debug_assert!(begun, "one of two lists is not under way");
        self.send.push_termination(Role::Host, request, header);
        self.last = true;
    }

    /// Returns the list to send now and the bytes of its data, if a lane counts them; `None` if
    /// there is nothing to send, or a send is in flight. A connection that is `live`, with
    /// `occupied` commands, follows its doorbell.
    #[inline]
    pub(super) fn next_send(
        &mut self,
        live: bool,
        now: Time,
        occupied: usize,
    ) -> Option<(Box<SendList>, u64)> {
        if self.send.has_nothing_to_send() || (live && !self.rings(now, occupied)) {
            return None;
        }
        if self.send.is_sending() {
            return None;
        }
        let mut bytes = 0;
        if self.is_paced() {
            bytes = self.send.loaded().bytes + self.send.account().0;
        }
        let (list, departure) = self.send.send_filling()?;
        departure.count(&mut self.counters);
        Some((list, bytes))
    }

    /// Returns true if the filling caravan is sent now.
    #[inline]
    fn rings(&mut self, now: Time, occupied: usize) -> bool {
        if !self.is_paced() || self.send.is_due() {
            return true;
        }
        let waiting = self.waiting();
        let in_flight = u32::try_from(occupied).map_or(u32::MAX, |n| n.saturating_sub(waiting));
        let decision = self.send.doorbell_mut().on_completion(now, in_flight);
        matches!(decision, Decision::Ring(_))
    }

    /// Takes back the list of a completed send.
    pub(super) fn sent(&mut self, list: Box<SendList>) {
        self.send.end_send(list, &mut self.lists);
    }

    /// Returns the time at which held commands must be sent at the latest.
    pub(super) fn deadline(&self) -> Time {
        // While a send is in flight, everything else waits for its end.
        if self.is_paced() && !self.send.has_nothing_to_send() && !self.send.is_sending() {
            self.send.doorbell().deadline()
        } else {
            Time::NEVER
        }
    }

    /// Remembers a command that was answered while a send still reads its data.
    pub(super) fn defer_answer(&mut self, index: u16) {
        self.answered.push(index);
    }

    /// Ends, after a send, the answered commands whose data no send holds any more.
    pub(super) fn finish_answered(&mut self, table: &mut CommandTable) {
        let send = &self.send;
        self.answered.retain(|&index| {
            let Some(completion) = table.early_answer(index) else {
                return false;
            };
            let is_carried = !send.has_left(table.mark(index));
            !table.answer(index, completion, is_carried)
        });
    }

    /// Resets the state after the connection is closed and no send is in flight.
    pub(super) fn reset(&mut self) {
        debug_assert!(!self.send.is_sending(), "a closed connection sends nothing");
        self.send.abandon(&mut self.lists, drop);
        self.queue.clear();
        self.transfers.clear();
        self.answered.clear();
        self.last = false;
    }
}

/// Returns the bytes and segments that a command needs in a send.
#[inline]
fn load(exchange: &Exchange) -> (u32, u32) {
    let header = u32::try_from(CapsuleCmd::SIZE).expect("72");
    if exchange.extents().is_some() {
        let capsule = exchange.data.as_ref().map_or(0, IoSlice::len);
        let capsule = u32::try_from(capsule).expect("at most what a capsule carries");
        return (header + capsule, 2);
    }
    match exchange.direction {
        Direction::Out => {
            let data = u32::try_from(exchange.data_bytes()).expect("at most a transfer");
            (header + data, DATA_IOVECS)
        }
        _ => (header, 1),
    }
}

/// Returns the urgency of a command: a Flush or durable write is never held, whatever its class.
#[inline]
fn urgency(exchange: &Exchange, class: Class) -> Urgency {
    match exchange.operation() {
        Some(
            Operation::Read
            | Operation::Write { durable: false }
            | Operation::Compare
            | Operation::Verify
            | Operation::Deallocate
            | Operation::WriteZeroes { durable: false, .. },
        ) => Urgency::of(class),
        _ => Urgency::Urgent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::BlockRequest;
    use crate::command::exchange::Work;
    use base::Nanos;
    use base::units::Lba;

    fn request(operation: Operation) -> Exchange {
        let work = Work::Block(BlockRequest {
            operation,
            nsid: 1,
            namespace: 0,
            lba: Lba(0),
            blocks: 8,
            blocks_done: 0,
            blocks_left: 0,
            private_data: false,
            extent_of: None,
        });
        Exchange::new(1, work, Direction::None, None)
    }

    fn pace(lane: &mut Outgoing, knobs: &switch::Knobs) {
        let limits = knobs.caravan.limits(switch::LatencyActivity::Absent);
        lane.pace(knobs.doorbell, limits, Class::Throughput);
    }

    fn fixed() -> Outgoing {
        let mut lane = Outgoing::new(64, SendListPool::default());
        pace(&mut lane, &switch::Knobs::linux());
        lane
    }

    /// Puts a command into the caravan of a connection with `occupied` commands.
    fn start(lane: &mut Outgoing, exchange: &Exchange, now: Time, occupied: usize) {
        lane.join(exchange, now, occupied);
        assert!(lane.has_room() && lane.load(exchange));
        lane.send.push_bytes(&[0; 72]);
    }

    /// Returns the bytes of data that are sent now.
    fn send(lane: &mut Outgoing, now: Time, occupied: usize) -> Option<u64> {
        let (list, bytes) = lane.next_send(true, now, occupied)?;
        lane.sent(list);
        Some(bytes)
    }

    #[test]
    fn patient_requests_are_held_until_the_timer_or_the_sixteenth() {
        let mut lane = fixed();
        let read = request(Operation::Read);
        for n in 1..16 {
            start(&mut lane, &read, Time(1_000), 20 + n);
            assert_eq!(send(&mut lane, Time(1_000), 20 + n), None, "{n} wait");
        }
        assert_eq!(lane.deadline(), Time(1_000) + Nanos::from_micros(50));
        start(&mut lane, &read, Time(2_000), 40);
        assert!(!lane.load(&read), "a caravan is sixteen");
        assert!(send(&mut lane, Time(2_000), 40).is_some());
        assert_eq!(lane.deadline(), Time::NEVER);
        start(&mut lane, &read, Time(3_000), 40);
        assert_eq!(send(&mut lane, Time(3_000), 40), None);
        let until = lane.deadline();
        assert!(send(&mut lane, until, 40).is_some(), "the timer");
        assert_eq!(lane.counters().requests, 17);
        assert_eq!(lane.counters().bytes, 17 * 72, "what TCP got");
    }

    #[test]
    fn what_may_not_wait_takes_along_what_does() {
        for urgent in [
            Operation::Flush,
            Operation::Write { durable: true },
            Operation::WriteZeroes {
                deallocate: false,
                durable: true,
            },
        ] {
            let mut lane = fixed();
            start(&mut lane, &request(Operation::Read), Time(1), 9);
            assert_eq!(send(&mut lane, Time(1), 9), None);
            start(&mut lane, &request(urgent), Time(2), 10);
            assert!(send(&mut lane, Time(2), 10).is_some());
            assert_eq!(lane.counters().requests, 2);
        }
        let mut lane = fixed();
        start(&mut lane, &request(Operation::Read), Time(1), 9);
        lane.load_data(4096);
        assert!(
            send(&mut lane, Time(1), 9).is_some(),
            "data that was asked for"
        );
    }

    /// A single send of megabytes would delay the requests of all other lanes.
    #[test]
    fn data_that_was_asked_for_leaves_in_caravans_as_well() {
        let mut lane = fixed();
        assert!(lane.has_room());
        assert_eq!(lane.room_for_data(), 65_536);
        lane.send.push_bytes(&[0; 24]);
        lane.load_data(61_440);
        assert_eq!(lane.room_for_data(), 4_096);
        lane.load_data(4_096);
        assert_eq!(lane.room_for_data(), 0);
        assert_eq!(send(&mut lane, Time(1), 1), Some(65_536));
        let mut knobs = switch::Knobs::linux();
        knobs.caravan.alone.bytes = 1;
        pace(&mut lane, &knobs);
        assert_eq!(lane.room_for_data(), 4_096, "something must leave");
        lane.load_data(4_096);
        assert_eq!(lane.room_for_data(), 0);
    }

    #[test]
    fn a_knob_lets_go_of_what_is_held() {
        let mut lane = fixed();
        let read = request(Operation::Read);
        start(&mut lane, &read, Time(1), 9);
        assert_eq!(send(&mut lane, Time(1), 9), None);
        pace(&mut lane, &switch::Knobs::nvme_tcp());
        assert!(lane.deadline() <= Time(1));
        assert!(send(&mut lane, Time(2), 9).is_some());
        start(&mut lane, &read, Time(3), 9);
        assert!(!lane.load(&read), "one request a send");
        assert!(send(&mut lane, Time(3), 9).is_some());
    }
}
