//! The states of a connection.
//!
//! ```text
//!           open            TCP            ICResp          Connect
//!  Closed ───────► Connecting ──► Initializing ──► Joining ──────► Live
//!    ▲  ▲              │               │              │              │
//!    │  └──────────────┤               ├──────────────┴──────────────┤
//!    │       refused   │ close         │ the controller breaks a rule│ close, error
//!    │                 ▼               ▼                             │
//!    └───────────── Closing ◄──── Terminating                        │
//!                      ▲                                             │
//!                      └─────────────────────────────────────────────┘
//! ```

base::states! {
    pub(crate) enum ConnectionState {
        /// No part of it exists.
        Closed = "closed",
        /// The TCP connection is being made.
        Connecting = "connecting",
        /// ICReq was sent; ICResp is due.
        Initializing = "initializing",
        /// Connect was sent; its completion is due.
        Joining = "joining",
        /// Commands flow.
        Live = "live",
        /// The controller broke the rules; H2CTermReq is leaving.
        Terminating = "terminating",
        /// The socket is being closed.
        Closing = "closing",
    }
}

impl ConnectionState {
    /// Returns true if the connection is ending.
    pub(super) const fn is_ending(self) -> bool {
        matches!(self, Self::Terminating | Self::Closing)
    }

    fn follows(self, before: Self) -> bool {
        use ConnectionState::{
            Closed, Closing, Connecting, Initializing, Joining, Live, Terminating,
        };
        match self {
            Closed => matches!(before, Connecting | Closing),
            Connecting => before == Closed,
            Initializing => before == Connecting,
            Joining => before == Initializing,
            Live => before == Joining,
            Terminating => matches!(before, Initializing | Joining | Live | Terminating),
            // A socket that was connected while it was already to be closed is closed then.
            Closing => before != Closed,
        }
    }
}
