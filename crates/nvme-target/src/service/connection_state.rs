//! States of a connection.
//!
//! ```text
//!  AwaitingIcReq ──► AwaitingConnect ──► Live ──► Draining
//!        │  └──── (arrives from a core) ──▲│          │
//!        │                 │               │          │
//!        ├─────────────────┴───────────────┴──────────┴──► Terminating (C2HTermReq sent)
//!        ▼                 ▼               ▼          ▼          │
//!        └─────────────────┴──► Closing ◄──┴──────────┴──────────┘
//!                                  │
//!                                  ▼
//!                               Closed
//! ```

base::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub(crate) enum ConnectionState {
        /// The host has to send ICReq.
        AwaitingIcReq = "awaiting ICReq",
        /// The host has to send Connect.
        AwaitingConnect = "awaiting Connect",
        /// The queue pair is connected.
        Live = "live",
        /// No further command is executed; commands in flight are answered, then the connection
        /// closes.
        Draining = "draining",
        /// A termination request was sent; the host closes the connection, or else the target does
        /// after the linger time.
        Terminating = "terminating",
        /// The driver closes the socket, or hands it to another core.
        Closing = "closing",
        /// The socket is closed or handed over; commands may still be in a device.
        Closed = "closed",
    }
}

impl ConnectionState {
    /// Returns true if a connection may go from this state to `next`.
    pub(super) const fn may_become(self, next: Self) -> bool {
        match next {
            Self::AwaitingIcReq => false,
            Self::AwaitingConnect => matches!(self, Self::AwaitingIcReq),
            Self::Live => matches!(self, Self::AwaitingIcReq | Self::AwaitingConnect),
            Self::Draining => matches!(self, Self::Live),
            Self::Terminating => (self as u8) < Self::Terminating as u8,
            Self::Closing => (self as u8) < Self::Closing as u8,
            Self::Closed => matches!(self, Self::Closing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_closes_once_and_never_lives_again() {
        use ConnectionState::{Closed, Closing, Draining, Live, Terminating};
        assert!(Live.may_become(Draining) && Draining.may_become(Terminating));
        assert!(Closing.may_become(Closed));
        for next in [Live, Draining, Terminating, Closing] {
            assert!(!Closing.may_become(next), "{}", next.name());
            assert!(!Closed.may_become(next), "{}", next.name());
        }
    }
}
