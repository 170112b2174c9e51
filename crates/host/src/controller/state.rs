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

use base::state::State;

/// State of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// The admin queue is being connected.
    Connecting,
    /// The controller is being enabled and identified.
    SettingUp,
    /// Requests flow.
    Live,
    /// The association is lost; connections of it are being closed.
    Draining,
    /// The next attempt comes later.
    Waiting,
    /// The controller is being shut down.
    ShuttingDown,
    /// It is over.
    Closed,
}

impl ControllerState {
    /// Number of states.
    pub(super) const COUNT: usize = 7;

    /// Returns true while an association is being made, or about to be.
    pub(super) const fn is_making(self) -> bool {
        matches!(self, Self::Connecting | Self::SettingUp | Self::Waiting)
    }
}

impl State for ControllerState {
    const ALL: &'static [Self] = &[
        Self::Connecting,
        Self::SettingUp,
        Self::Live,
        Self::Draining,
        Self::Waiting,
        Self::ShuttingDown,
        Self::Closed,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::SettingUp => "setting_up",
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Waiting => "waiting",
            Self::ShuttingDown => "shutting_down",
            Self::Closed => "closed",
        }
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
