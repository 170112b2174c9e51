//! The state of a socket that the decisions about arrivals need.

use super::line::ArrivalQueue;
use base::Time;
use switch::Class;

/// The receive that is outstanding on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No receive is outstanding.
    Nothing,
    /// Any data.
    Anything,
    /// The rest of a payload, into its destination.
    Payload,
}

/// The state of a socket that the decisions need.
#[derive(Debug)]
pub struct Interest {
    /// The receive that is outstanding.
    pub wanted: Wanted,
    /// Class of its arrivals.
    pub class: Class,
    /// Data arrived recently: the socket is read directly on every turn.
    pub hot: bool,
    /// Time at which it became hot.
    pub(super) hot_since: Time,
    pub(super) last_arrival: Time,
    /// The last two arrivals were at most [`HOT_WINDOW`](super::HOT_WINDOW) apart.
    pub(super) recurs: bool,
    /// The last receive was bulk.
    pub(super) bulk: bool,
    /// Time of the last receive that emptied the socket.
    pub(super) drained: Time,
    /// Data arrived, and the socket waits in line.
    pub in_line: bool,
    /// Maximum bytes of one receive; `usize::MAX` without a quantum.
    pub(super) quantum: usize,
    /// The last receive was cut by its quantum, so more data may be there.
    pub(super) cut: bool,
    /// The socket is closing: nothing more is received.
    pub closing: bool,
}

impl Interest {
    /// Creates the state of a socket adopted at `now`, without an outstanding receive.
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

    /// Returns true if its arrivals must not wait for those of other sockets.
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        !self.class.properties().may_wait
    }

    pub(super) fn receives(&self) -> bool {
        self.wanted != Wanted::Nothing
    }

    /// The queue in which the socket waits.
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
