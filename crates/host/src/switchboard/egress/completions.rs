//! Completions from the egresses to their submitters, which are notified of each at once or of
//! several together.

use super::egresses::unpack;
use super::{EgressService, SubmitterState, Submitters};
use crate::switchboard::ingress::IngressCompletion;
use base::{Nanos, Time};
use block::{BlockError, Channel};
use reactor::IoSlice;
use switch::Class;
use switch::knobs::Lanes;

impl EgressService {
    /// Takes the completions of the lanes, and notifies their submitters.
    pub(super) fn take_completions(&mut self, now: Time) {
        for nth in 0..self.egresses.busy_count() {
            // Before the answers that result from it.
            self.note_refusal(nth);
            while let Some(done) = self.egresses.busy(nth).channel.reap() {
                let egress = self.egresses.busy(nth);
                let losses = egress.channel.reaped_losses();
                let (submitter, slot, class) = unpack(done.tag);
                let bytes = done.data.as_ref().map_or(0, IoSlice::len) as u64;
                let target = usize::from(egress.target);
                self.config
                    .loads
                    .note_over(self.config.core, target, class, bytes);
                self.completed(
                    now,
                    class,
                    submitter,
                    IngressCompletion {
                        slot,
                        result: done.result,
                        losses,
                    },
                );
            }
        }
        for submitter in self.submitters.answered.drain(..) {
            if let Some(known) = &mut self.submitters.known[submitter as usize] {
                self.statistics.counters.notify(&mut known.held_completions);
                known.submitter.sleeper.ring();
            }
        }
        let Submitters { known, held, .. } = &mut self.submitters;
        let counters = &mut self.statistics.counters;
        held.retain(|&submitter| {
            let Some(known) = &mut known[submitter as usize] else {
                return false;
            };
            if known.held_completions.is_due(now) {
                counters.notify(&mut known.held_completions);
                known.submitter.sleeper.ring();
            }
            known.held_completions.until() != Time::NEVER
        });
    }

    /// Reports to submitters whether a lane gets a queue. Submitters to which the device was
    /// reported gone have nothing outstanding that would wake them when the lane gets a queue
    /// again.
    fn note_refusal(&mut self, nth: usize) {
        let shared = self.config.knobs.lanes == Lanes::Shared;
        let egress = self.egresses.busy(nth);
        let refused = !egress.channel.is_back();
        if std::mem::replace(&mut egress.refused, refused) == refused {
            return;
        }
        let (core, target) = (self.config.core, usize::from(egress.target));
        for class in Class::ALL {
            if shared || class == egress.class {
                self.config.loads.note_refused(core, target, class, refused);
            }
        }
        egress.channel.association().announce();
    }

    /// Handles a completed request; its submitter is notified at the end of this turn, or later.
    pub(super) fn completed(
        &mut self,
        now: Time,
        class: Class,
        submitter: u32,
        done: IngressCompletion,
    ) {
        let most = if self.latency.level.is_active() && !self.closing {
            self.config.knobs.completion_hold
        } else {
            Nanos::ZERO
        };
        let known = self.finish(submitter, done);
        let held = known.held_completions.until() != Time::NEVER;
        let under_way = known.submitter.under_way();
        let tell = known
            .held_completions
            .completed(now, class, under_way, most);
        if !tell && !held {
            self.submitters.held.push(submitter);
        } else if tell && self.submitters.answered.last() != Some(&submitter) {
            self.submitters.answered.push(submitter);
        }
    }

    pub(super) fn finish(
        &mut self,
        submitter: u32,
        done: IngressCompletion,
    ) -> &mut SubmitterState {
        let known = self.submitters.known[submitter as usize]
            .as_mut()
            .expect("a submitter stays known while it has requests outstanding");
        known.submitter.finish(done);
        if known.closed && known.submitter.is_quiet() {
            known.submitter.let_go();
        }
        known
    }

    /// Answers a request immediately; its submitter is notified at once.
    pub(super) fn answer(&mut self, submitter: u32, slot: u32, result: Result<(), BlockError>) {
        let done = IngressCompletion {
            slot,
            result,
            losses: 0,
        };
        self.finish(submitter, done);
        if self.submitters.answered.last() != Some(&submitter) {
            self.submitters.answered.push(submitter);
        }
    }

    /// Removes submitters that have left and whose requests are all answered.
    pub(super) fn forget_closed(&mut self) {
        for known in &mut self.submitters.known {
            let over = known.take_if(|known| known.closed && known.submitter.is_quiet());
            if let Some(known) = over {
                known.submitter.let_go();
            }
        }
    }
}
