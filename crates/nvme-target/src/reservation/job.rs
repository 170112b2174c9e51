//! A change of reservations on its way to their thread.

use super::state::{HostId, Request};
use crate::request::Ticket;
use crate::subsystem::Subsystem;
use std::sync::Arc;

/// A command that waits for the thread. Their number is that of outstanding commands.
#[derive(Debug)]
pub(crate) struct Job {
    /// The core of the command, and the command.
    pub(crate) core: usize,
    pub(crate) asker: Ticket,
    pub(crate) subsystem: Arc<Subsystem>,
    /// The namespace; FFFFFFFFh for all.
    pub(crate) nsid: u32,
    pub(crate) host: HostId,
    pub(crate) request: Request,
}
