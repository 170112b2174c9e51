//! The states of a controller.
//!
//! ```text
//!                tick              Connect              namespaces known
//!  Waiting ────────────► Connecting ─────► SettingUp ──────────────────► Live
//!    ▲ │                     │                 │                          │ │ close
//!    │ │                     │      error      │          loss            │ ▼
//!    │ │                     ▼                 ▼                          │ ShuttingDown
//!    │ │                 Draining ◄────────────┴──────────────────────────┘ │
//!    │ │                   │   │ ▲                                          │
//!    └─│───────────────────┘   │ └──────────────────────────────────────────┘
//!      ▼                       ▼
//!      └──────────────────► Closed
//! ```

base::states! {
    /// State of a controller.
    pub enum ControllerState {
        /// The admin queue is being connected.
        Connecting = "connecting",
        /// The controller is being enabled and identified.
        SettingUp = "setting_up",
        /// Requests flow.
        Live = "live",
        /// The association is lost; connections of it are being closed.
        Draining = "draining",
        /// The next attempt comes later.
        Waiting = "waiting",
        /// The controller is being shut down.
        ShuttingDown = "shutting_down",
        /// It is over.
        Closed = "closed",
    }
}

impl ControllerState {
    /// Returns true while an association is being made, or about to be.
    pub(super) const fn is_making(self) -> bool {
        matches!(self, Self::Connecting | Self::SettingUp | Self::Waiting)
    }

    fn follows(self, before: Self) -> bool {
        match self {
            Self::Connecting => before == Self::Waiting,
            Self::SettingUp => before == Self::Connecting,
            Self::Live => before == Self::SettingUp,
            Self::ShuttingDown => before == Self::Live,
            Self::Waiting => before == Self::Draining,
            Self::Closed => matches!(before, Self::Draining | Self::Waiting),
            // A loss may be found more than once before it is drained.
            Self::Draining => before != Self::Closed,
        }
    }
}
