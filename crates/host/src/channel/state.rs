//! The states of a channel.
//!
//! ```text
//!            the epoch moves             an association is live          all lanes are
//!  Waiting ──────────────────► Leaving ─────────────────────────► Joining ───────────► Live
//!     ▲                        │  │  ▲                               │                  │
//!     │ none is live           │  │  │         lost, closed          │                  │
//!     └────────────────────────┘  │  └───────────────────────────────┴──────────────────┘
//!                                 ▼
//!                                Gone ───► Joining, Waiting: where a queue can be had again
//! ```
//!
//! A channel leaves `Leaving` when every lane is closed. It becomes `Gone` from every state, where
//! its requests may not wait any longer.

base::states! {
    /// State of a channel.
    pub enum ChannelState {
        /// No association is live: requests wait.
        Waiting = "waiting",
        /// Lanes are being connected: requests wait until all are.
        Joining = "joining",
        /// Requests flow.
        Live = "live",
        /// The association was lost: lanes are being closed.
        Leaving = "leaving",
        /// It will not come back: requests fail.
        Gone = "gone",
    }
}

impl ChannelState {
    fn follows(self, before: Self) -> bool {
        match self {
            // A channel that got no queue gets one where the next association grants more.
            Self::Waiting | Self::Joining => matches!(before, Self::Leaving | Self::Gone),
            Self::Live => before == Self::Joining,
            Self::Leaving => before != Self::Gone,
            Self::Gone => true,
        }
    }
}
