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

base::states! {
    /// State of a slot's command.
    pub(crate) enum SlotState {
        /// There is none.
        Free = "free",
        /// It waits for room in a send.
        Queued = "queued",
        /// It is with the controller, or in a send.
        Outstanding = "outstanding",
        /// It was answered while a send still read its data; the table keeps the answer.
        Answered = "answered",
        /// It is over, and its owner has not taken it yet.
        Finished = "finished",
    }
}

impl SlotState {
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
