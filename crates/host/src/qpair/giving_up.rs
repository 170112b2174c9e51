//! Commands of which the submitters do not wait for the end.

use super::connection::Qpair;
use crate::command::exchange::{Direction, Exchange};
use base::Time;
use reactor::IoSlice;

impl Qpair {
    /// Takes a command out that is in no send. A lane has counted it into a caravan, and keeps it.
    pub(crate) fn withdraw(&mut self, index: u16) -> Option<Exchange> {
        if self.tx.is_paced() {
            return None;
        }
        let place = self.tx.queue.iter().position(|&queued| queued == index)?;
        self.tx.queue.remove(place);
        Some(self.table.withdraw(index))
    }

    /// Takes the data of a command away, which stays in the table until it is answered: what arrives
    /// for it is dropped. `None` where an operation of the driver may still use the data, or the
    /// controller may still ask for it.
    pub(crate) fn detach(&mut self, index: u16, now: Time) -> Option<Option<IoSlice>> {
        let is_carried = self.is_carried(index);
        let deadline = now + self.config.command_timeout;
        let slot = self.table.slot(index);
        let is_asked_for = slot.received == slot.data_bytes && !slot.has_transfers();
        let exchange = slot.exchange.as_mut()?;
        let is_free = match exchange.direction {
            Direction::None => true,
            // Otherwise a receive is filling it.
            Direction::In => exchange.data.is_some(),
            Direction::Out => is_asked_for && !is_carried && exchange.reclaim(),
        };
        if !is_free {
            return None;
        }
        exchange.detached = true;
        let data = exchange.take_data();
        slot.detach(deadline);
        Some(data)
    }

    /// Returns true while a send carries data of the command, or waits with some. A device's memory
    /// is not counted as a buffer's owners are, so nothing else says that it is in use.
    pub(super) fn is_carried(&self, index: u16) -> bool {
        !self.tx.send.has_left(self.table.mark(index))
    }
}
