//! Faults that a network may have.

use base::Nanos;

/// Faults of the network on a connection. All of them are legal for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Longest time that a piece is on its way.
    pub delay_max: Nanos,
    /// Pieces that a send is split into, at most.
    pub pieces_max: u64,
    /// A send in this many cuts the connection, after some prefix of it; 0 for never.
    pub cut_one_in: u64,
    /// Longest time that what was on its way when a connection was cut may still take to arrive, as
    /// it does when it has to be sent again.
    pub linger_max: Nanos,
    /// A cut in this many takes all connections of the same host with it, in the same way; 0 for
    /// never.
    pub partition_one_in: u64,
    /// A connect in this many is refused; 0 for never.
    pub refuse_one_in: u64,
    /// Connects get no answer.
    pub unreachable: bool,
    /// Longest time for which a send stays with its driver before the kernel has taken it.
    pub send_stall_max: Nanos,
    /// Inverse of the share of cuts that are silent: no end is told for a minute or two, as when a
    /// cable is pulled; 0 for never.
    pub silent_one_in: u64,
    /// In a send in this many one bit is flipped that TCP's checksum did not catch; 0 for never.
    /// The first PDU of a connection is spared: it has no digest.
    pub flip_one_in: u64,
    /// Bytes of a connection that are on their way or not received yet, at most: a sender waits for
    /// its receiver.
    pub window_bytes: u64,
    /// A send in this many is taken in part although there is room for all of it; 0 for never.
    pub partial_one_in: u64,
}

/// Send and receive buffers of a kernel together, as they grow to.
const WINDOW_BYTES: u64 = 4 << 20;

/// Longest time of a kernel with buffers that are full now and then.
const SEND_STALL_MAX: Nanos = Nanos::from_micros(300);

impl NetworkFaults {
    /// A network that only delays a little.
    pub const CALM: Self = Self {
        delay_max: Nanos::from_micros(20),
        pieces_max: 1,
        cut_one_in: 0,
        linger_max: Nanos::ZERO,
        partition_one_in: 0,
        refuse_one_in: 0,
        unreachable: false,
        send_stall_max: SEND_STALL_MAX,
        silent_one_in: 0,
        flip_one_in: 0,
        window_bytes: WINDOW_BYTES,
        partial_one_in: 0,
    };
    /// A network without any delay: all that matters is the order.
    pub const NO_DELAYS: Self = Self {
        delay_max: Nanos::ZERO,
        send_stall_max: Nanos::ZERO,
        ..Self::CALM
    };
    /// A network that splits and delays, but keeps its connections.
    pub const ROUGH: Self = Self {
        delay_max: Nanos::from_millis(2),
        pieces_max: 7,
        ..Self::CALM
    };
    /// A network that also cuts.
    pub const HOSTILE: Self = Self {
        delay_max: Nanos::from_millis(1),
        pieces_max: 5,
        cut_one_in: 400,
        linger_max: Nanos::from_millis(400),
        partition_one_in: 2,
        refuse_one_in: 5,
        ..Self::CALM
    };

    /// The same faults for an association that makes so many connections for its threads, all of which
    /// have to be there at a time: where each fails as often as a single one may, it takes hours.
    #[must_use]
    pub fn with_connections(self, connections: u64) -> Self {
        let rarely = |one_in: u64| one_in.max(connections) * u64::from(one_in > 0);
        Self {
            refuse_one_in: rarely(self.refuse_one_in),
            flip_one_in: self.flip_one_in * connections,
            ..self
        }
    }
}

/// The lies on a connection, by direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// The host to an honest target.
    OfHost,
    /// The target to an honest host.
    OfTarget,
    /// Each to the other.
    OfBoth,
}

impl Lies {
    /// Each.
    pub const ALL: [Self; 3] = [Self::OfHost, Self::OfTarget, Self::OfBoth];

    pub(super) fn are_told(self, by_host: bool) -> bool {
        match self {
            Self::OfHost => by_host,
            Self::OfTarget => !by_host,
            Self::OfBoth => true,
        }
    }
}
