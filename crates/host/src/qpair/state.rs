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

use base::state::State;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// No part of it exists.
    Closed,
    /// The TCP connection is being made.
    Connecting,
    /// ICReq was sent; ICResp is due.
    Initializing,
    /// Connect was sent; its completion is due.
    Joining,
    /// Commands flow.
    Live,
    /// The controller broke the rules; H2CTermReq is leaving.
    Terminating,
    /// The socket is being closed.
    Closing,
}

impl ConnectionState {
    /// Number of states.
    pub(crate) const COUNT: usize = 7;

    /// Returns true if the connection is ending.
    pub(super) const fn is_ending(self) -> bool {
        matches!(self, Self::Terminating | Self::Closing)
    }
}

impl State for ConnectionState {
    const ALL: &'static [Self] = &[
        Self::Closed,
        Self::Connecting,
        Self::Initializing,
        Self::Joining,
        Self::Live,
        Self::Terminating,
        Self::Closing,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Connecting => "connecting",
            Self::Initializing => "initializing",
            Self::Joining => "joining",
            Self::Live => "live",
            Self::Terminating => "terminating",
            Self::Closing => "closing",
        }
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
