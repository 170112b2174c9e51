//! Discovery: the subsystems reported by a discovery controller and by those that it refers to.
//! `[NVMe Base 2.0 §3.1.2.3]`

pub(crate) mod log;
pub(crate) mod referrals;

/// Progress of an inquiry that takes several admin commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Send the next command.
    Continue,
    /// The inquiry is complete.
    Finished,
    /// The controller returned invalid data.
    Failed(&'static str),
}
