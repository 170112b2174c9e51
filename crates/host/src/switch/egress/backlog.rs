//! Requests that wait for room in a lane, and those that their submitters give up, or of which the time
//! is over, meanwhile. With the latter a lane deals itself for what it has.

use super::EgressService;
use super::egresses::{Outcome, pack};
use crate::switch::ingress::IngressRequest;
use block::BlockError;
use reactor::Context;
use switch::Class;

impl EgressService {
    /// Hands out what found no room before.
    pub(super) fn drain_backlogs(&mut self, cx: &mut Context<'_>) {
        for nth in 0..self.egresses.busy_count() {
            while let Some(entry) = self.egresses.busy(nth).backlog.pop_front() {
                let known = &self.submitters.known[entry.submitter as usize];
                let memory = &known.as_ref().expect("it has requests outstanding").memory;
                match self.egresses.busy(nth).submit(entry, memory, cx) {
                    Outcome::Taken => {}
                    Outcome::Busy => {
                        self.egresses.busy(nth).backlog.push_front(entry);
                        break;
                    }
                    Outcome::Done(result) => self.over(entry, result),
                }
            }
        }
    }

    /// Answers what was given up, as far as it is here.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>) {
        if self.ingress().has_given_up() {
            self.give_up_cancelled(cx);
        }
        for nth in 0..self.egresses.busy_count() {
            let egress = self.egresses.busy(nth);
            if egress.backlog_limit <= cx.now {
                for entry in egress.take_kept(|entry| entry.limit <= cx.now) {
                    self.over(entry, Err(BlockError::TimedOut));
                }
            }
        }
    }

    fn give_up_cancelled(&mut self, cx: &mut Context<'_>) {
        let mut given_up = Vec::new();
        for (number, known) in (0..).zip(&self.submitters.known) {
            let slots = known
                .iter()
                .flat_map(|known| known.submitter.slots_given_up());
            given_up.extend(slots.map(|slot| (number, slot)));
        }
        for nth in 0..self.egresses.busy_count() {
            let egress = self.egresses.busy(nth);
            for &(submitter, slot) in &given_up {
                for class in Class::ALL {
                    egress.channel.cancel(pack(submitter, slot, class), cx);
                }
            }
            let is_one = |entry: &IngressRequest| given_up.contains(&(entry.submitter, entry.slot));
            for entry in egress.take_kept(is_one) {
                self.over(entry, Err(BlockError::Aborted));
            }
        }
    }
}
