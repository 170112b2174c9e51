//! The I/O connections of an association that its controller waits for when it is lost.

use super::Association;
use crate::recovery::epoch::Epoch;
use crate::recovery::rest::Rest;
use reactor::Wake;
use std::sync::Arc;

impl Association {
    /// Registers a channel, as [`add_waker`](Self::add_waker). Returns its key and its rest.
    pub(crate) fn add_channel(&self, waker: Arc<dyn Wake>) -> (u64, Arc<Rest>) {
        let (id, rest) = (self.add_waker(waker), Arc::new(Rest::new()));
        self.lock().rests.insert(id, Arc::clone(&rest));
        (id, rest)
    }

    /// An I/O connection is about to be opened; refused when the epoch has moved meanwhile.
    pub(crate) fn enter_open(&self, epoch: Epoch) -> bool {
        if self.epoch.enter(epoch) {
            return true;
        }
        self.leave_open(1);
        false
    }

    /// I/O connections are closed or retired.
    pub(crate) fn leave_open(&self, count: u32) {
        if count > 0 && self.epoch.leave(count) {
            self.announce();
        }
    }

    /// Returns the number of I/O connections that are open and not retired. The association is lost:
    /// those of the channels at rest are retired now.
    pub(crate) fn open_connections(&self) -> u32 {
        for rest in self.lock().rests.values() {
            let open = rest.retire();
            if open > 0 {
                // Only this caller waits for that.
                let _ = self.epoch.leave(open);
            }
        }
        self.epoch.open()
    }
}
