//! Outcome of a command's arrival.

/// Outcome of a command's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The command was taken.
    Continue,
    /// No buffer is free for the command's data: it must be seen again later.
    Stall,
}
