//! Requests on their way, and those that the application does not wait for.

use super::{Client, InFlight, Way, slab_key, tag};
use crate::application::GivesUp;
use crate::trace::say;
use base::Nanos;
use block::{BlockError, Request, Submit};
use reactor::Context;

/// The longest that a request with a limit is waited for: some are done by then, and some are not.
const PATIENCE: Nanos = Nanos::from_micros(2_000);

impl Client {
    /// Submits a request. Returns false if the channel has no room for it.
    pub(super) fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> bool {
        let limit = self.gives_up.as_mut().and_then(|(prng, _)| {
            prng.chance(1, 16)
                .then(|| cx.now + Nanos(prng.below(PATIENCE.0)))
        });
        let submit = match (&mut self.channel, limit) {
            (Way::Remote(channel), Some(limit)) => {
                say(|| format!("{:?}: it waits until {limit:?}", cx.now));
                if let Some(known) = self.in_flight.get_mut(slab_key(request.tag)) {
                    known.given_up = true;
                }
                channel.submit_until(request, limit, cx)
            }
            (way, _) => way.as_mut().submit(request, cx),
        };
        match submit {
            Submit::Done(completion) => self.answered(completion, false),
            Submit::Queued => {}
            Submit::Busy(request) => {
                self.refused.push_front(request);
                return false;
            }
        }
        true
    }

    /// Returns true if a write that ended so may take effect after newer ones of other hosts, which
    /// nothing holds back.
    pub(super) fn may_come_late(&self, request: &InFlight, answer: Result<(), BlockError>) -> bool {
        let gave_up = matches!(answer, Err(BlockError::TimedOut | BlockError::Aborted));
        let others = matches!(self.gives_up, Some((_, GivesUp::BesideOthers)));
        request.given_up && gave_up && others
    }

    /// Cancels a request now and then.
    pub(super) fn cancel_some(&mut self, cx: &mut Context<'_>) {
        let (Way::Remote(channel), Some((prng, _))) = (&mut self.channel, &mut self.gives_up)
        else {
            return;
        };
        if self.in_flight.is_empty() || !prng.chance(1, 128) {
            return;
        }
        let drawn = usize::try_from(prng.below(self.in_flight.len() as u64));
        let mut keys = self.in_flight.iter().map(|(key, _)| key);
        let key = keys.nth(drawn.unwrap_or(0)).expect("fewer than there are");
        drop(keys);
        say(|| format!("{:?}: {} cancels {key:?}", cx.now, self.name));
        if channel.cancel(tag(key), cx)
            && let Some(known) = self.in_flight.get_mut(key)
        {
            known.given_up = true;
        }
    }
}
