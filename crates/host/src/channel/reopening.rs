//! The refused lanes of a channel: when they are opened again, and the last refusal.

use crate::options::ConnectOptions;
use base::{Nanos, Time};
use wire::nvme::Status;

/// The lanes that the controller has refused.
#[derive(Debug)]
pub(super) struct Reopening {
    /// Time at which they are opened again.
    pub(super) at: Time,
    /// Wait after which that is tried the next time.
    pub(super) delay: Nanos,
    /// Time at which the channel has to run at the latest, while it waits for a lane.
    pub(super) due: Time,
    /// The identifier of the last such queue, or 0: others are tried before it.
    pub(super) queue_id: u16,
    /// The queue and the status of the last refusal, of another queue than one that the controller
    /// has still.
    pub(super) refusal: Option<(u16, Status)>,
}

impl Reopening {
    /// None are.
    pub(super) const fn new(options: &ConnectOptions) -> Self {
        Self {
            at: Time::NEVER,
            delay: options.reconnect_delay_min,
            due: Time::NEVER,
            queue_id: 0,
            refusal: None,
        }
    }

    /// The channel is live. Single lanes may be opened later.
    pub(super) const fn joined(&mut self, options: &ConnectOptions) {
        let at = self.at;
        *self = Self::new(options);
        self.at = at;
    }
}
