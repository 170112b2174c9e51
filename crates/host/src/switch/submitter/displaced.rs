//! Requests of a submitter that another way has to take, and those that it gives up.

use super::SwitchedChannel;
use block::BlockError;

impl SwitchedChannel {
    /// Hands the ingress what the thread's own lane has no queue for.
    pub(super) fn redirect(&mut self) {
        let Some(direct) = &mut self.direct else {
            return;
        };
        let loads = &self.device.board.inner.loads;
        while let Some(displaced) = direct.take_displaced(loads) {
            self.displaced.push_back(displaced);
        }
        if self.is_broken() {
            return;
        }
        while let Some((request, limit)) = self.displaced.pop_front() {
            if let Err(request) = self.put(request, limit) {
                self.displaced.push_front((request, limit));
                return;
            }
        }
    }

    /// Gives up what waits for room in the ingress.
    pub(super) fn give_up_displaced(&mut self, tag: u64) -> bool {
        let before = self.displaced.len();
        for _ in 0..before {
            let (request, limit) = self.displaced.pop_front().expect("counted above");
            if request.tag == tag {
                let ended = request.ended(Err(BlockError::Aborted));
                self.given_up.push_back(ended);
            } else {
                self.displaced.push_back((request, limit));
            }
        }
        self.displaced.len() < before
    }

    /// Gives up what was put into an ingress: the threads that have it, or will have it, look for it.
    pub(super) fn give_up_put(&mut self, tag: u64) -> bool {
        let mut found = false;
        for (slot, pending) in (0..).zip(&self.slots) {
            if pending.as_ref().is_some_and(|pending| pending.tag == tag) {
                self.submitter.give_up(slot);
                found = true;
            }
        }
        if found {
            for ingress in self.device.board.inner.ingresses.iter() {
                ingress.look_for_given_up();
            }
        }
        found
    }
}
