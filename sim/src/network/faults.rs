//! Faults of the simulated network.

use base::Nanos;

/// Faults of the network on a connection. All of them are legal for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Maximum latency of a piece.
    pub delay_max: Nanos,
    /// Maximum pieces of a send.
    pub pieces_max: u64,
    /// One send in this many cuts the connection after some prefix of the send; 0 for never.
    pub cut_one_in: u64,
    /// Maximum additional time in which data in flight at a cut arrives, like data that TCP
    /// retransmits.
    pub linger_max: Nanos,
    /// One cut in this many cuts all connections of the same host in the same way; 0 for never.
    pub partition_one_in: u64,
    /// One connect in this many is refused; 0 for never.
    pub refuse_one_in: u64,
    /// Connects get no answer.
    pub unreachable: bool,
    /// Maximum time until the kernel takes a send from its driver.
    pub send_stall_max: Nanos,
    /// One cut in this many is silent: neither end notices it for one to two minutes, like a pulled
    /// cable; 0 for never.
    pub silent_one_in: u64,
    /// One send in this many has a flipped bit that TCP's checksum did not detect; 0 for never. The
    /// first PDU of a connection is exempt: it has no digest.
    pub flip_one_in: u64,
    /// Maximum bytes of a connection in flight or not yet received: a sender waits for its
    /// receiver.
    pub window_bytes: u64,
    /// One send in this many is taken in part although there is room for all of it; 0 for never.
    pub partial_one_in: u64,
}

/// Combined size of a kernel's send and receive buffers after auto-tuning.
const WINDOW_BYTES: u64 = 4 << 20;

/// Maximum send delay of a kernel whose buffers are full at times.
const SEND_STALL_MAX: Nanos = Nanos::from_micros(300);

impl NetworkFaults {
    /// A network with small delays only.
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
    /// A network without delays: only the order matters.
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
    /// A network that also cuts connections.
    pub const HOSTILE: Self = Self {
        delay_max: Nanos::from_millis(1),
        pieces_max: 5,
        cut_one_in: 400,
        linger_max: Nanos::from_millis(400),
        partition_one_in: 2,
        refuse_one_in: 5,
        ..Self::CALM
    };

    /// Returns the same faults for an association with this many connections that must all exist at
    /// the same time: if each failed as often as a single one may, connecting would take hours.
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

/// Directions of a connection in which PDUs are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// From the host to an unmodified target.
    OfHost,
    /// From the target to an unmodified host.
    OfTarget,
    /// In both directions.
    OfBoth,
}

impl Lies {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::OfHost, Self::OfTarget, Self::OfBoth];

    pub(super) fn are_told(self, by_host: bool) -> bool {
        match self {
            Self::OfHost => by_host,
            Self::OfTarget => !by_host,
            Self::OfBoth => true,
        }
    }
}
