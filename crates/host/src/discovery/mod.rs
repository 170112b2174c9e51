//! Discovery: the subsystems that a discovery controller, and those that it refers to, announce.
//! `[NVMe Base 2.0 §3.1.2.3]`

pub(crate) mod log;
pub(crate) mod referrals;

/// Next step of a question that takes several admin commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Ask the next command.
    Continue,
    /// Everything is known.
    Finished,
    /// The controller says something that cannot be.
    Failed(&'static str),
}
