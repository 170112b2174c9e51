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

use base::state::State;

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// No association is live: requests wait.
    Waiting,
    /// Lanes are being connected: requests wait until all are.
    Joining,
    /// Requests flow.
    Live,
    /// The association was lost: lanes are being closed.
    Leaving,
    /// It will not come back: requests fail.
    Gone,
}

impl ChannelState {
    /// Number of states.
    pub(super) const COUNT: usize = 5;
}

impl State for ChannelState {
    const ALL: &'static [Self] = &[
        Self::Waiting,
        Self::Joining,
        Self::Live,
        Self::Leaving,
        Self::Gone,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Joining => "joining",
            Self::Live => "live",
            Self::Leaving => "leaving",
            Self::Gone => "gone",
        }
    }

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
