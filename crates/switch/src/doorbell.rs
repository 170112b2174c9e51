//! The doorbell: the rule that decides when a caravan leaves. `[i10 §2.4, §3]`
//!
//! One [`Doorbell`] per egress, on host and target. It answers every event with a [`Decision`]; the
//! caller keeps the requests, sets the timer, sends, and reports what left. `Ring` means to send by
//! the end of this turn; [`Reason::Urgent`] and full caravans may leave at once. i10's doorbell
//! delays even a lone request by its timer. The adaptive one holds only if enough is outstanding to
//! fill the caravan, and arrivals are fast enough on average to do so within the bound. A hold that
//! the timer ends doubles the estimated gap, so that such mistakes become rare. Invariant: never
//! holds a request that may not wait, or beyond its bound, or on a lane with nothing else
//! outstanding; keeps track of held requests when a knob changes.

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

/// The mode of a doorbell: when it rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Rings for every request: no batching.
    Immediate,
    /// i10's rule: rings when a limit is reached, or `delay` after the first request. `[i10 §2.4]`
    Fixed {
        /// Size at which it rings before the delay has passed.
        fill: CaravanLimits,
        /// Delay after the first request; [`Knobs`](crate::knobs::Knobs) validates that it is at
        /// least 25 µs.
        delay: Nanos,
    },
    /// Holds only if the caravan is likely to fill in time (see the module).
    Adaptive {
        /// Caravan size that is worth waiting for; it rings on reaching it.
        fill: CaravanLimits,
        /// Maximum time that a request is held.
        max_hold: Nanos,
    },
}

impl Mode {
    /// i10's constants: 16 requests, 64 KiB, 50 µs. `[i10 §3]`
    pub const FIXED: Self = Self::Fixed {
        fill: FILL,
        delay: DOORBELL_DELAY,
    };

    /// The default: i10's caravan, held for at most 50 µs, and only if it is likely to fill.
    pub const ADAPTIVE: Self = Self::Adaptive {
        fill: FILL,
        max_hold: DOORBELL_HOLD,
    };

    /// Maximum time that a request may be held in this mode.
    #[must_use]
    pub const fn bound(self) -> Nanos {
        match self {
            Self::Immediate => Nanos::ZERO,
            Self::Fixed { delay, .. } => delay,
            Self::Adaptive { max_hold, .. } => max_hold,
        }
    }

    /// Returns the size at which it rings early; one request if nothing is ever held.
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

/// Whether a request may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// The request may be held.
    Patient,
    /// The request may not be held: its class does not wait, or it is a Flush, FUA, R2T or other
    /// control PDU. Waiting requests leave with it. `[i10 §3, no-delay path]`
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
    /// Why a caravan left.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Reason {
        /// The caravan has reached its request limit.
        RequestsFull = "requests_full",
        /// The caravan has reached its byte limit.
        BytesFull = "bytes_full",
        /// The caravan has reached its segment limit.
        IovecsFull = "iovecs_full",
        /// The oldest request has reached its bound.
        Timer = "timer",
        /// A request arrived that may not be held.
        Urgent = "urgent",
        /// The lane had nothing else outstanding.
        Idle = "idle",
        /// The caravan was unlikely to fill within the bound.
        Sparse = "sparse",
        /// The mode holds nothing.
        Disabled = "disabled",
        /// The mode changed while requests were held.
        Knob = "knob",
        /// The caller sent without a ring, because it had to send something anyway.
        Asked = "asked",
    }
}

/// The decision of a doorbell, which its egress executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The egress sends the waiting requests by the end of this turn, and confirms with
    /// [`Doorbell::rang`].
    Ring(Reason),
    /// The egress keeps the waiting requests, and calls [`Doorbell::on_timer`] at this time at the
    /// latest.
    Hold {
        /// Time at which the oldest request reaches its bound; [`Time::NEVER`] if nothing waits.
        until: Time,
    },
}

impl Decision {
    /// The decision when nothing waits.
    pub const NOTHING: Self = Self::Hold { until: Time::NEVER };
}

/// Counters of the caravans sent by one or more egresses; kept by their owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorbellCounters {
    /// Sent caravans, by [`Reason::index`].
    pub rings: [u64; Reason::COUNT],
    /// Histogram of caravan sizes, in requests.
    pub sizes: SizeHistogram,
    /// Sent requests.
    pub requests: u64,
    /// Sent bytes as reported by the egress, including headers.
    pub bytes: u64,
}

impl DoorbellCounters {
    /// Counts a caravan of `requests` requests and `bytes` bytes; without requests it counts
    /// nothing.
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

    /// Adds other counters.
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
    /// Time at which the oldest waiting request reaches its bound; undefined if nothing waits.
    until: Time,
    /// The reason of a ring that the caller has not confirmed yet.
    due: Option<Reason>,
    mode: Mode,
    /// The limits and bound of `mode`, cached for the fast path.
    fill: CaravanLimits,
    bound: Nanos,
    pace: Pace,
}

impl Doorbell {
    /// Creates a doorbell with nothing waiting.
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

    /// Adds a waiting request (or response).
    ///
    /// `in_flight` is the number of other requests outstanding on this lane that can cause an
    /// arrival: on the host, requests sent and not completed; on the target, commands received and
    /// not completed. Waiting requests do not count.
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

    /// Handles the timer of the last [`Decision::Hold`]; calling it early or late is harmless.
    #[inline]
    pub fn on_timer(&mut self, now: Time) -> Decision {
        if self.waiting.is_empty() {
            return Decision::NOTHING;
        }
        let late = now >= self.until && self.due.is_none();
        self.decide(late.then_some(Reason::Timer))
    }

    /// Handles a completion on the lane; `in_flight`, as in [`Doorbell::on_request`], is the
    /// remaining number.
    #[inline]
    pub fn on_completion(&mut self, now: Time, in_flight: u32) -> Decision {
        let idle = in_flight == 0 && matches!(self.mode, Mode::Adaptive { .. });
        if idle && !self.waiting.is_empty() && self.due.is_none() {
            return self.decide(Some(Reason::Idle));
        }
        self.on_timer(now)
    }

    /// Records that everything waiting has left in one caravan. Returns the reason.
    #[inline]
    pub fn rang(&mut self) -> Reason {
        self.took(self.waiting)
    }

    /// Records that `caravan`, a part of the waiting requests, has left; returns the reason. The
    /// rest of a ring is still to be sent: the next decision repeats it.
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

    /// Removes the waiting requests without counting them, because the lane was lost; returns their
    /// size.
    pub fn clear(&mut self) -> Caravan {
        self.due = None;
        std::mem::take(&mut self.waiting)
    }

    /// Sets another mode at once. Held requests are rung for, so that none waits under an old rule.
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

    /// Returns the size of the waiting requests.
    #[inline]
    #[must_use]
    pub const fn waiting(&self) -> Caravan {
        self.waiting
    }

    /// Returns the reason of a pending ring, or `None`.
    #[inline]
    #[must_use]
    pub const fn due(&self) -> Option<Reason> {
        self.due
    }

    /// Returns the latest time of the next call: now if a ring is not completely sent,
    /// [`Time::NEVER`] if nothing waits.
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

    /// Returns the reason to ring for a patient request that has just arrived, or `None`.
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

    /// Stores the reason to ring, and returns the decision for the waiting requests.
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

/// The pace of patient requests: arrival rate and size.
#[derive(Clone, Copy, Debug)]
struct Pace {
    last: Time,
    gap_ns: Ewma,
    bytes: Ewma,
}

impl Pace {
    /// Creates the pace of a lane without history: no arrivals are expected.
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

    /// Slows the estimate after fewer arrivals than expected.
    fn disappointed(&mut self) {
        let doubled = self.gap_ns.value().saturating_mul(2).max(1);
        self.gap_ns = Ewma::of(doubled.min(ARRIVAL_GAP_MAX.0));
    }

    /// Returns true if the outstanding requests are enough, and arrive fast enough, to fill the
    /// caravan within `window`, by requests or by bytes. Uses products instead of quotients because
    /// it runs for every request.
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
