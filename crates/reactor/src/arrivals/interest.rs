//! The part of a socket that the decisions about arrivals need.

use super::line::ArrivalQueue;
use base::Time;
use switch::Class;

/// The receive that is outstanding on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No receive is outstanding.
    Nothing,
    /// Whatever comes.
    Anything,
    /// The rest of a payload, to where it belongs.
    Payload,
}

/// The part of a socket that the decisions need.
#[derive(Debug)]
pub struct Interest {
    /// The receive that is outstanding.
    pub wanted: Wanted,
    /// Class of what arrives.
    pub class: Class,
    /// Data came lately: the socket is read directly on every turn.
    pub hot: bool,
    /// Time at which it became hot.
    pub(super) hot_since: Time,
    pub(super) last_arrival: Time,
    /// The last two arrivals were no further apart than a silent socket stays hot.
    pub(super) recurs: bool,
    /// The last receive brought much at once.
    pub(super) bulk: bool,
    /// Time of the last receive that left nothing behind.
    pub(super) drained: Time,
    /// Something arrived, and others were before it.
    pub in_line: bool,
    /// Bytes that one receive takes at most; `usize::MAX` without a quantum.
    pub(super) quantum: usize,
    /// The last receive took its quantum, so more may have arrived.
    pub(super) cut: bool,
    /// The socket closes: nothing is received any more.
    pub closing: bool,
}

impl Interest {
    /// Makes the state of a socket that was adopted at `now`, on which nothing is received yet.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self {
            wanted: Wanted::Nothing,
            class: Class::DEFAULT,
            hot: false,
            hot_since: Time::ZERO,
            last_arrival: now,
            recurs: false,
            bulk: false,
            drained: Time::ZERO,
            in_line: false,
            quantum: usize::MAX,
            cut: false,
            closing: false,
        }
    }

    /// Returns true if what arrives must not wait for what arrives on others.
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        !self.class.properties().may_wait
    }

    pub(super) fn receives(&self) -> bool {
        self.wanted != Wanted::Nothing
    }

    /// The queue in which the socket waits for its turn.
    pub(super) const fn queue(&self) -> ArrivalQueue {
        if self.is_urgent() {
            ArrivalQueue::Urgent
        } else if self.quantum < usize::MAX {
            ArrivalQueue::Bounded
        } else {
            ArrivalQueue::Others
        }
    }
}
