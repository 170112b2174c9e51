//! Loads of a core's queues.

use crate::poll_group::PollGroup;
use base::Time;
use switch::limits::LOAD_RESET;

impl PollGroup {
    /// Forgets the loads of queues that have fallen silent, now and then.
    pub(super) fn forget_silent(&mut self, now: Time) {
        if now < self.core.switch.forget_at {
            return;
        }
        self.core.switch.forget_at = now + LOAD_RESET;
        if !self.core.switch.is_loaded() {
            return;
        }
        for (_, connection) in self.connections.iter_mut() {
            if let Some(class) = connection.output.class()
                && connection.demand.is_stale(now)
            {
                self.core.switch.load[class] -= connection.demand.forget();
                self.core.touch();
            }
        }
    }
}
