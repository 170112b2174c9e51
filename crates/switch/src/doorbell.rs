//! The doorbell: decides when a caravan is sent. `[i10 §2.4, §3]`
//!
//! The same for host and target, requests and responses. A [`Doorbell`] belongs to one egress. It
//! counts waiting requests and their age, and returns a [`Decision`] for every event. The caller
//! keeps the requests, sets the timer, sends, and reports what was sent. Invariants: it never
//! delays an urgent request, a request on an otherwise idle lane, or any request beyond the limit;
//! changes of parameters lose nothing.
//!
//! `Ring` means *send before the end of this turn of the loop*, with later arrivals of the turn.
//! After [`Reason::Urgent`] the egress sends at once; it may also send a full caravan at once.
//!
//! # The adaptive rule
//!
//! The doorbell of i10 delays a single request until a timer, so it suits only throughput work. The
//! adaptive doorbell delays a request only if it expects a full caravan, which needs two
//! conditions:
//!
//! - enough is *under way*: a request that is out brings, when it completes, the next one (of a
//!   closed loop, or the answer to a command that the device has). With less under way than the
//!   caravan lacks, waiting can not fill it. At depth 1 nothing is under way, ever;
//! - it arrives *soon enough*: at the pace of late (a moving average of the gaps between arrivals
//!   and of their bytes) what lacks arrives before the oldest one's bound is over.
//!
//! If the timer ends a delay, the estimated gap doubles, so that wrong delays do not repeat.
//! Rejected: learning the best delay by trial (no measure of success is available), and a fixed
//! delay at high load (the threshold depends on caravan and machine).

use crate::caravan::{Caravan, CaravanLimits, Full, SizeHistogram};
use crate::class::Class;
use crate::limits::{
    ARRIVAL_GAP_MAX, CARAVAN_BYTES, CARAVAN_IOVECS, CARAVAN_REQUESTS, DOORBELL_DELAY,
    DOORBELL_HOLD, REQUEST_BYTES_MAX,
};
use crate::load::Ewma;
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// The mode of a doorbell: the conditions under which it rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Rings for every request: no batching at all.
    Immediate,
    /// i10's rule: when a limit is reached, or `delay` after the first request, whatever else
    /// happens. `[i10 §2.4]`
    Fixed {
        /// The amount that rings early.
        fill: CaravanLimits,
        /// Delay from the first request on; validated by [`Knobs`](crate::knobs::Knobs) to be at
        /// least 25 µs.
        delay: Nanos,
    },
    /// Holds only where the wait is likely to fill the caravan (see the module).
    Adaptive {
        /// The amount that is worth waiting for, and rings when it is there.
        fill: CaravanLimits,
        /// The longest that a request is held.
        max_hold: Nanos,
    },
}

impl Mode {
    /// i10's constants: 16 requests, 64 KiB, 50 µs. `[i10 §3]`
    pub const FIXED: Self = Self::Fixed {
        fill: FILL,
        delay: DOORBELL_DELAY,
    };

    /// The default: i10's caravan, held for at most 50 µs, and only where that is likely to pay.
    pub const ADAPTIVE: Self = Self::Adaptive {
        fill: FILL,
        max_hold: DOORBELL_HOLD,
    };

    /// The longest that a request may be held in this mode.
    #[must_use]
    pub const fn bound(self) -> Nanos {
        match self {
            Self::Immediate => Nanos::ZERO,
            Self::Fixed { delay, .. } => delay,
            Self::Adaptive { max_hold, .. } => max_hold,
        }
    }

    /// Returns the amount that rings early; one request where nothing is ever held.
    const fn fill(self) -> CaravanLimits {
        match self {
            Self::Immediate => CaravanLimits {
                requests: 1,
                bytes: 1,
                iovecs: 1,
            },
            Self::Fixed { fill, .. } | Self::Adaptive { fill, .. } => fill,
        }
    }
}

/// i10's caravan.
const FILL: CaravanLimits = CaravanLimits {
    requests: CARAVAN_REQUESTS,
    bytes: CARAVAN_BYTES,
    iovecs: CARAVAN_IOVECS,
};

/// The urgency of a request: it may be held, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// The request may wait for others.
    Patient,
    /// The request may not wait: a class that does not, Flush, FUA, R2T and all other control. What
    /// waits goes along. `[i10 §3, no-delay path]`
    Urgent,
}

impl Urgency {
    /// Returns the urgency of an ordinary read or write of this class.
    #[inline]
    #[must_use]
    pub const fn of(class: Class) -> Self {
        if class.properties().may_wait {
            Self::Patient
        } else {
            Self::Urgent
        }
    }
}

base::named! {
    /// The reason for which a caravan left.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Reason {
        /// The caravan has as many requests as are worth waiting for.
        RequestsFull = "requests_full",
        /// The caravan has as many bytes as are worth waiting for.
        BytesFull = "bytes_full",
        /// The caravan has as many segments as are worth waiting for.
        IovecsFull = "iovecs_full",
        /// The oldest request has waited for as long as it may.
        Timer = "timer",
        /// A request came that may not wait.
        Urgent = "urgent",
        /// The lane had nothing else under way.
        Idle = "idle",
        /// The caravan was not likely to fill within the bound.
        Sparse = "sparse",
        /// The mode holds nothing.
        Disabled = "disabled",
        /// The mode changed while something was held.
        Knob = "knob",
        /// The caller sent without being told to (it had to send something anyway).
        Asked = "asked",
    }
}

/// The decision of a doorbell, for its egress to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The egress sends what waits before this turn of the loop ends, and says so
    /// ([`Doorbell::rang`]).
    Ring(Reason),
    /// The egress keeps what waits, and asks again ([`Doorbell::on_timer`]) at this time at the
    /// latest.
    Hold {
        /// Time at which the oldest request has waited long enough; [`Time::NEVER`] where nothing
        /// waits.
        until: Time,
    },
}

impl Decision {
    /// The decision where nothing waits.
    pub const NOTHING: Self = Self::Hold { until: Time::NEVER };
}

/// Counters of the caravans that left an egress. Its owner keeps them, for one egress or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorbellCounters {
    /// Caravans that left, by [`Reason::index`].
    pub rings: [u64; Reason::COUNT],
    /// Sizes of its caravans, in requests.
    pub sizes: SizeHistogram,
    /// Requests that left.
    pub requests: u64,
    /// Bytes that left: as many as the egress says that it sent, headers included.
    pub bytes: u64,
}

impl DoorbellCounters {
    /// Counts a caravan of so many requests and bytes; one without requests is none.
    #[inline]
    pub fn count(&mut self, reason: Reason, requests: u32, bytes: u64) {
        if requests == 0 {
            return;
        }
        self.rings[reason.index()] += 1;
        self.sizes.record(requests);
        self.requests += u64::from(requests);
        self.bytes += bytes;
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.rings.iter_mut().zip(other.rings) {
            *mine += theirs;
        }
        self.sizes.merge(&other.sizes);
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// The doorbell of one egress.
#[derive(Clone, Debug)]
pub struct Doorbell {
    waiting: Caravan,
    /// Time at which the oldest of them has waited long enough; of no meaning where nothing waits.
    until: Time,
    /// The reason of a ring that the caller has not confirmed yet.
    due: Option<Reason>,
    mode: Mode,
    /// `mode`'s limits and bound, where the fast path finds them.
    fill: CaravanLimits,
    bound: Nanos,
    pace: Pace,
}

impl Doorbell {
    /// A doorbell with nothing before it.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            waiting: Caravan::EMPTY,
            until: Time::NEVER,
            due: None,
            mode,
            fill: mode.fill(),
            bound: mode.bound(),
            pace: Pace::new(),
        }
    }

    /// Adds a request (or answer) to what waits.
    ///
    /// `in_flight` is what else is under way on this lane and can bring a further arrival: on the
    /// host, requests sent and not completed; on the target, commands received and not answered.
    /// Neither counts what waits here.
    #[inline]
    pub fn on_request(
        &mut self,
        now: Time,
        bytes: u32,
        iovecs: u32,
        urgency: Urgency,
        in_flight: u32,
    ) -> Decision {
        if self.waiting.is_empty() {
            self.until = now + self.bound;
        }
        self.waiting.add(bytes, iovecs);
        let reason = match urgency {
            Urgency::Urgent => Some(Reason::Urgent),
            Urgency::Patient => self.judge(now, bytes, in_flight),
        };
        self.decide(reason)
    }

    /// The time of the last [`Decision::Hold`] has come, or any other: late or early does no harm.
    #[inline]
    pub fn on_timer(&mut self, now: Time) -> Decision {
        if self.waiting.is_empty() {
            return Decision::NOTHING;
        }
        let late = now >= self.until && self.due.is_none();
        self.decide(late.then_some(Reason::Timer))
    }

    /// Something that was under way on the lane is over; `in_flight` (as in
    /// [`Doorbell::on_request`]) is what is left.
    #[inline]
    pub fn on_completion(&mut self, now: Time, in_flight: u32) -> Decision {
        let idle = in_flight == 0 && matches!(self.mode, Mode::Adaptive { .. });
        if idle && !self.waiting.is_empty() && self.due.is_none() {
            return self.decide(Some(Reason::Idle));
        }
        self.on_timer(now)
    }

    /// Notes that everything that waited has left in one caravan. Returns the reason.
    #[inline]
    pub fn rang(&mut self) -> Reason {
        self.took(self.waiting)
    }

    /// Notes that so much of what waited has left in one caravan, and returns the reason. The rest
    /// of what was rung for is still to be sent: the next decision says so again.
    #[inline]
    pub fn took(&mut self, caravan: Caravan) -> Reason {
        let reason = self.due.unwrap_or(Reason::Asked);
        self.waiting = self.waiting.without(caravan);
        if self.waiting.is_empty() {
            self.waiting = Caravan::EMPTY;
            self.due = None;
        }
        reason
    }

    /// The lane is gone, and what waited goes elsewhere or nowhere: it is returned, not counted.
    pub fn clear(&mut self) -> Caravan {
        self.due = None;
        std::mem::take(&mut self.waiting)
    }

    /// Sets another mode, from now on. What is held is rung for, so that it waits by no rule that
    /// no longer holds.
    pub fn reconfigure(&mut self, mode: Mode) -> Decision {
        if mode != self.mode {
            self.mode = mode;
            self.fill = mode.fill();
            self.bound = mode.bound();
            if !self.waiting.is_empty() && self.due.is_none() {
                return self.decide(Some(Reason::Knob));
            }
        }
        self.decide(None)
    }

    /// Returns the size of what waits.
    #[inline]
    #[must_use]
    pub const fn waiting(&self) -> Caravan {
        self.waiting
    }

    /// Returns the reason for which the caller is to send what waits, if it is.
    #[inline]
    #[must_use]
    pub const fn due(&self) -> Option<Reason> {
        self.due
    }

    /// Returns the time at which it must be asked again at the latest: at once where it rang and
    /// something of that is still to be sent, [`Time::NEVER`] where nothing waits.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Time {
        if self.due.is_some() {
            Time::ZERO
        } else if self.waiting.is_empty() {
            Time::NEVER
        } else {
            self.until
        }
    }

    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the reason for which a patient request that has just joined rings, if it does.
    #[inline]
    fn judge(&mut self, now: Time, bytes: u32, in_flight: u32) -> Option<Reason> {
        let adaptive = match self.mode {
            Mode::Immediate => return Some(Reason::Disabled),
            Mode::Fixed { .. } => false,
            Mode::Adaptive { .. } => true,
        };
        if adaptive {
            self.pace.arrived(now, bytes);
        }
        match self.waiting.full(&self.fill) {
            Some(Full::Requests) => Some(Reason::RequestsFull),
            Some(Full::Bytes) => Some(Reason::BytesFull),
            Some(Full::Iovecs) => Some(Reason::IovecsFull),
            None if adaptive && in_flight == 0 => Some(Reason::Idle),
            None if now >= self.until => Some(Reason::Timer),
            None if adaptive => {
                let window = self.until.since(now);
                let fills = self
                    .pace
                    .fills(&self.waiting, &self.fill, window, in_flight);
                (!fills).then_some(Reason::Sparse)
            }
            None => None,
        }
    }

    /// Remembers the reason to ring, and returns the decision about what waits.
    #[inline]
    fn decide(&mut self, reason: Option<Reason>) -> Decision {
        if let Some(reason) = reason {
            if reason == Reason::Timer && self.due.is_none() {
                self.pace.disappointed();
            }
            self.due = Some(reason);
        }
        match self.due {
            Some(reason) => Decision::Ring(reason),
            None if self.waiting.is_empty() => Decision::NOTHING,
            None => {
                debug_assert_ne!(self.until, Time::NEVER, "what is held has a bound");
                Decision::Hold { until: self.until }
            }
        }
    }
}

/// The pace of patient requests: their rate of arrival and their size.
#[derive(Clone, Copy, Debug)]
struct Pace {
    last: Time,
    gap_ns: Ewma,
    bytes: Ewma,
}

impl Pace {
    /// Makes the pace of a lane that has shown nothing yet: nothing is expected of it.
    fn new() -> Self {
        Self {
            last: Time::ZERO,
            gap_ns: Ewma::of(ARRIVAL_GAP_MAX.0),
            bytes: Ewma::default(),
        }
    }

    #[inline]
    fn arrived(&mut self, now: Time, bytes: u32) {
        self.gap_ns
            .add(now.since(self.last).0.min(ARRIVAL_GAP_MAX.0));
        self.bytes.add(u64::from(bytes).min(REQUEST_BYTES_MAX));
        self.last = now;
    }

    /// Less came than was expected.
    fn disappointed(&mut self) {
        let doubled = self.gap_ns.value().saturating_mul(2).max(1);
        self.gap_ns = Ewma::of(doubled.min(ARRIVAL_GAP_MAX.0));
    }

    /// Returns true if what is under way is enough, and comes fast enough, to fill the caravan
    /// within `window`: by requests or by bytes. In products instead of quotients: this is asked
    /// for every request.
    #[inline]
    fn fills(
        &self,
        waiting: &Caravan,
        fill: &CaravanLimits,
        window: Nanos,
        in_flight: u32,
    ) -> bool {
        let gap = self.gap_ns.value();
        let requests = fill.requests.saturating_sub(waiting.requests);
        if requests <= in_flight && u64::from(requests).saturating_mul(gap) <= window.0 {
            return true;
        }
        let each = self.bytes.value();
        let bytes = fill.bytes.saturating_sub(waiting.bytes);
        bytes <= u64::from(in_flight).saturating_mul(each)
            && bytes.saturating_mul(gap) <= window.0.saturating_mul(each)
    }
}
