//! Writes of a submitter that ends in the middle: no thread waits for them any more, and a lane may
//! still send them.

use super::SwitchedChannel;
use crate::switch::abandoned::AbandonedWrites;

impl SwitchedChannel {
    /// Gives up the writes that are not over, and holds newer ones of their blocks back until no
    /// dataplane thread has one of them. A path tells other threads that theirs among them are aborted.
    pub(super) fn abandon_writes(&mut self) {
        let association = self.device.remote.association();
        let slots = (0..).zip(&self.slots);
        let writes = slots.filter_map(|(slot, pending)| Some((slot, pending.as_ref()?.written?)));
        let (slots, spans): (Vec<u32>, Vec<_>) = writes.unzip();
        if slots.is_empty() {
            return;
        }
        let abandoned = AbandonedWrites::hold(association, spans);
        self.submitter.abandon(abandoned);
        slots
            .into_iter()
            .for_each(|slot| self.submitter.give_up(slot));
        for ingress in self.device.board.inner.ingresses.iter() {
            ingress.look_for_given_up();
        }
    }
}
