//! The states of a request on its connection.
//!
//! ```text
//!         insert            sent              answer, lost             taken
//!  Free ────────► Queued ─────────► Outstanding ─────────► Finished ─────────► Free
//!                    │                   │                    ▲
//!                    │ lost              │ answered while a   │ the send is over,
//!                    │                   ▼ send reads its data│ or the connection
//!                    │               Answered ────────────────┤
//!                    └────────────────────────────────────────┘
//! ```

use base::state::State;

/// State of a slot's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// There is none.
    Free,
    /// It waits for room in a send.
    Queued,
    /// It is with the controller, or in a send.
    Outstanding,
    /// It was answered while a send still read its data; the table keeps the answer.
    Answered,
    /// It is over, and its owner has not taken it yet.
    Finished,
}

impl SlotState {
    /// Number of states.
    pub(crate) const COUNT: usize = 5;
}

impl State for SlotState {
    const ALL: &'static [Self] = &[
        Self::Free,
        Self::Queued,
        Self::Outstanding,
        Self::Answered,
        Self::Finished,
    ];

    #[inline]
    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Queued => "queued",
            Self::Outstanding => "outstanding",
            Self::Answered => "answered",
            Self::Finished => "finished",
        }
    }

    #[inline]
    fn follows(self, before: Self) -> bool {
        match self {
            Self::Free => before == Self::Finished,
            Self::Queued => before == Self::Free,
            Self::Outstanding => before == Self::Queued,
            Self::Answered => matches!(before, Self::Outstanding | Self::Answered),
            Self::Finished => {
                matches!(before, Self::Queued | Self::Outstanding | Self::Answered)
            }
        }
    }
}
