//! When a lane's requests leave, and how many at once: the doorbell and the caravan of one egress.
//! `[i10 §2.3, §2.4]`
//!
//! The rules are the switch's ([`Doorbell`], [`CaravanLimits`]); this is what a connection keeps to
//! follow them. A connection without it sends what it has whenever it can.

use crate::command::exchange::Exchange;
use crate::limits::H2C_DATA_STEP;
use base::Time;
use block::Operation;
use switch::doorbell::{Decision, DoorbellCounters, Mode, Urgency};
use switch::{Caravan, CaravanLimits, Class, Doorbell};
use wire::tcp::CapsuleCmd;

/// The doorbell and the caravan of a lane.
#[derive(Debug)]
pub(crate) struct LaneDoorbell {
    doorbell: Doorbell,
    limits: CaravanLimits,
    class: Class,
    /// What is in the list that fills.
    loaded: Caravan,
    /// Something is in the list that is nobody's request, and may not wait.
    rush: bool,
    /// Bytes of data in the list that the controller asked for.
    asked_bytes: u64,
    /// When what waits must leave at the latest.
    until: Time,
}

impl LaneDoorbell {
    /// For a lane of this class.
    pub(crate) fn new(mode: Mode, limits: CaravanLimits, class: Class) -> Self {
        Self {
            doorbell: Doorbell::new(mode),
            limits,
            class,
            loaded: Caravan::EMPTY,
            rush: false,
            asked_bytes: 0,
            until: Time::NEVER,
        }
    }

    /// Other rules, from now on; what is held leaves in the next turn.
    pub(crate) fn reconfigure(&mut self, mode: Mode, limits: CaravanLimits) {
        self.limits = limits;
        if let Decision::Ring(_) = self.doorbell.reconfigure(mode) {
            self.until = Time::ZERO;
        }
    }

    /// A command joins those that wait; `occupied` is how many the lane has, with this one.
    #[inline]
    pub(super) fn joins(&mut self, exchange: &Exchange, now: Time, occupied: usize) {
        let (bytes, iovecs) = load(exchange);
        let waiting = self.doorbell.waiting().requests.saturating_add(1);
        let under_way = u32::try_from(occupied).map_or(u32::MAX, |n| n.saturating_sub(waiting));
        let urgency = urgency(exchange, self.class);
        let decision = self
            .doorbell
            .on_request(now, bytes, iovecs, urgency, under_way);
        self.note(decision);
    }

    /// Whether the list that fills takes another command.
    #[inline]
    pub(super) fn takes(&self, exchange: &Exchange) -> bool {
        let (bytes, iovecs) = load(exchange);
        self.loaded.accepts(bytes, iovecs, &self.limits)
    }

    /// A command was put into the list.
    #[inline]
    pub(super) fn loaded(&mut self, exchange: &Exchange) {
        let (bytes, iovecs) = load(exchange);
        self.loaded.add(bytes, iovecs);
    }

    /// Bytes of data that the controller asked for which the list still takes: whole steps of
    /// [`H2C_DATA_STEP`], and one of them in any case where the list is empty.
    pub(super) fn room_for_data(&self) -> u32 {
        let carried = self.loaded.bytes.saturating_add(self.asked_bytes);
        let room = self.limits.bytes.saturating_sub(carried);
        let room = u32::try_from(room).unwrap_or(u32::MAX) / H2C_DATA_STEP * H2C_DATA_STEP;
        if carried == 0 {
            room.max(H2C_DATA_STEP)
        } else {
            room
        }
    }

    /// Data that the controller asked for was put into the list. It may not wait.
    pub(super) fn carries(&mut self, bytes: u32) {
        self.rush = true;
        self.asked_bytes += u64::from(bytes);
    }

    /// Whether what is in the list leaves now; `occupied` is how many commands the lane has.
    #[inline]
    pub(super) fn rings(&mut self, now: Time, occupied: usize) -> bool {
        if self.rush {
            return true;
        }
        let waiting = self.doorbell.waiting().requests;
        let under_way = u32::try_from(occupied).map_or(u32::MAX, |n| n.saturating_sub(waiting));
        let decision = self.doorbell.on_completion(now, under_way);
        self.note(decision);
        matches!(decision, Decision::Ring(_))
    }

    /// The list left, with so many bytes for TCP; how many of them count against its quantum.
    #[inline]
    pub(super) fn left(&mut self, sent_bytes: usize) -> u64 {
        let loaded = std::mem::take(&mut self.loaded);
        self.doorbell.took_as(loaded, sent_bytes as u64);
        self.rush = false;
        self.until = Time::NEVER;
        loaded.bytes + std::mem::take(&mut self.asked_bytes)
    }

    /// The connection is gone, and with it what waited.
    pub(super) fn clear(&mut self) {
        self.doorbell.clear();
        self.loaded = Caravan::EMPTY;
        self.rush = false;
        self.asked_bytes = 0;
        self.until = Time::NEVER;
    }

    /// When what waits must leave at the latest.
    pub(super) const fn deadline(&self) -> Time {
        self.until
    }

    /// Commands that wait for the doorbell.
    pub(crate) const fn waiting(&self) -> u32 {
        self.doorbell.waiting().requests
    }

    /// What left so far, and why.
    pub(crate) const fn counters(&self) -> &DoorbellCounters {
        self.doorbell.counters()
    }

    #[inline]
    fn note(&mut self, decision: Decision) {
        self.until = match decision {
            // It is sent before the turn ends, or as soon as the send under way is over.
            Decision::Ring(_) => Time::NEVER,
            Decision::Hold { until } => until,
        };
    }
}

/// Bytes and segments that a command takes in a send.
#[inline]
fn load(exchange: &Exchange) -> (u32, u32) {
    let header = u32::try_from(CapsuleCmd::SIZE).expect("72");
    match exchange.direction {
        crate::command::exchange::Direction::Out => {
            let data = u32::try_from(exchange.data_bytes()).expect("at most a transfer");
            (header + data, 2)
        }
        _ => (header, 1),
    }
}

/// Whether a command may be held: Flush and what must be durable may not, whatever their class.
#[inline]
fn urgency(exchange: &Exchange, class: Class) -> Urgency {
    let operation = exchange.request().map(|request| request.operation);
    match operation {
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
    use crate::command::exchange::{Direction, Work};
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
        });
        Exchange::new(1, work, Direction::None, None)
    }

    fn fixed() -> LaneDoorbell {
        let knobs = switch::Knobs::linux();
        LaneDoorbell::new(
            knobs.doorbell,
            knobs.caravan.limits(switch::LatencyActivity::Absent),
            Class::Throughput,
        )
    }

    #[test]
    fn patient_requests_are_held_until_the_timer_or_the_sixteenth() {
        let mut lane = fixed();
        let read = request(Operation::Read);
        for n in 1..16 {
            lane.joins(&read, Time(1_000), 20 + n);
            lane.loaded(&read);
            assert!(!lane.rings(Time(1_000), 20 + n), "{n} wait");
        }
        assert_eq!(lane.deadline(), Time(1_000) + Nanos::from_micros(50));
        lane.joins(&read, Time(2_000), 40);
        lane.loaded(&read);
        assert!(!lane.takes(&read), "a caravan is sixteen");
        assert!(lane.rings(Time(2_000), 40));
        lane.left(16 * 76);
        assert_eq!(lane.deadline(), Time::NEVER);
        lane.joins(&read, Time(3_000), 40);
        lane.loaded(&read);
        assert!(!lane.rings(Time(3_000), 40));
        assert!(lane.rings(lane.deadline(), 40), "the timer");
        lane.left(76);
        assert_eq!(lane.counters().requests, 17);
        assert_eq!(
            lane.counters().bytes,
            17 * 76,
            "what TCP got, digests and all"
        );
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
            let read = request(Operation::Read);
            lane.joins(&read, Time(1), 9);
            lane.loaded(&read);
            assert!(!lane.rings(Time(1), 9));
            let urgent = request(urgent);
            lane.joins(&urgent, Time(2), 10);
            lane.loaded(&urgent);
            assert!(lane.rings(Time(2), 10));
            lane.left(144);
            assert_eq!(lane.counters().requests, 2);
        }
        let mut lane = fixed();
        lane.joins(&request(Operation::Read), Time(1), 9);
        lane.carries(4096);
        assert!(lane.rings(Time(1), 9), "data that was asked for");
    }

    /// It would keep everybody else's requests waiting for as long as a send of megabytes takes.
    #[test]
    fn data_that_was_asked_for_leaves_in_caravans_as_well() {
        let mut lane = fixed();
        assert_eq!(lane.room_for_data(), 65_536);
        lane.carries(61_440);
        assert_eq!(lane.room_for_data(), 4_096);
        lane.carries(4_096);
        assert_eq!(lane.room_for_data(), 0);
        assert_eq!(lane.left(65_536 + 24), 65_536);
        let mut knobs = switch::Knobs::linux();
        knobs.caravan.alone.bytes = 1;
        lane.reconfigure(
            knobs.doorbell,
            knobs.caravan.limits(switch::LatencyActivity::Absent),
        );
        assert_eq!(lane.room_for_data(), 4_096, "something must leave");
        lane.carries(4_096);
        assert_eq!(lane.room_for_data(), 0);
    }

    #[test]
    fn a_knob_lets_go_of_what_is_held() {
        let mut lane = fixed();
        let read = request(Operation::Read);
        lane.joins(&read, Time(1), 9);
        lane.loaded(&read);
        assert!(!lane.rings(Time(1), 9));
        let knobs = switch::Knobs::nvme_tcp();
        lane.reconfigure(
            knobs.doorbell,
            knobs.caravan.limits(switch::LatencyActivity::Absent),
        );
        assert!(lane.deadline() <= Time(1));
        assert!(lane.rings(Time(2), 9));
        lane.left(72);
        lane.joins(&read, Time(3), 9);
        lane.loaded(&read);
        assert!(!lane.takes(&read), "one request a send");
        assert!(lane.rings(Time(3), 9));
    }
}
