//! Submission of requests, and requests that time out or are cancelled.

use super::{Client, InFlight, RequestKind, Way};
use crate::trace::say;
use base::{Nanos, Prng, SlabKey, Time};
use block::{BlockError, Request, Submit};
use reactor::Context;
use std::ops::Range;

/// How a client times out or cancels requests.
#[derive(Debug)]
pub(super) struct GivingUp {
    prng: Prng,
    /// Generator for commands over extents, so that the draws for requests do not depend on those.
    prng_of_extents: Prng,
    /// One request in this many has a timeout.
    limit_one_in: u64,
    /// Maximum timeout: some requests complete within it, some do not.
    patience: Nanos,
    /// One opportunity in this many to cancel a request is taken.
    cancel_one_in: u64,
    /// Blocks of the last write that was given up: half of these writes are repeated immediately.
    given_up: Option<Range<usize>>,
}

impl GivingUp {
    pub(super) fn new(seed: u64) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x61FE);
        let mut one_of = |choices: [u64; 3]| {
            let drawn = usize::try_from(prng.below(3)).expect("a few");
            choices[drawn]
        };
        Self {
            prng_of_extents: Prng::from_seed(seed ^ 0x61FE_E87E),
            limit_one_in: one_of([2, 16, 64]),
            patience: Nanos::from_micros(one_of([100, 500, 2_000])),
            cancel_one_in: one_of([16, 128, 512]),
            given_up: None,
            prng,
        }
    }

    /// Occasionally draws the timeout of a request.
    fn limit(&mut self, now: Time) -> Option<Time> {
        Self::draw(&mut self.prng, self.limit_one_in, self.patience, now)
    }

    /// Occasionally draws the timeout of a command over extents.
    pub(super) fn limit_of_extents(&mut self, now: Time) -> Option<Time> {
        let prng = &mut self.prng_of_extents;
        Self::draw(prng, self.limit_one_in, self.patience, now)
    }

    fn draw(prng: &mut Prng, one_in: u64, patience: Nanos, now: Time) -> Option<Time> {
        let limited = prng.chance(1, one_in);
        limited.then(|| now + Nanos(prng.below(patience.0)))
    }
}

impl Client {
    /// Notes that a write was given up without a definite result.
    pub(super) fn note_given_up(&mut self, request: &InFlight, answer: Result<(), BlockError>) {
        let gave_up = matches!(answer, Err(BlockError::TimedOut | BlockError::Aborted));
        let is_write = matches!(request.kind, RequestKind::Write { .. });
        if let Some(gives_up) = &mut self.gives_up
            && gave_up
            && is_write
        {
            gives_up.given_up = Some(request.range.clone());
        }
    }

    /// Returns the blocks of a given-up write that is to be repeated.
    pub(super) fn written_anew(&mut self) -> Option<Range<usize>> {
        let gives_up = self.gives_up.as_mut()?;
        let blocks = gives_up.given_up.take();
        blocks.filter(|_| gives_up.prng.chance(1, 2))
    }

    /// Submits a request. Returns false if the channel is full.
    pub(super) fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> bool {
        let gives_up = self.gives_up.as_mut();
        let limit = gives_up.and_then(|gives_up| gives_up.limit(cx.now));
        let submit = match (&mut self.channel, limit) {
            (Way::Remote(channel), Some(limit)) => {
                say(|| format!("{:?}: it waits until {limit:?}", cx.now));
                if let Some(known) = self.in_flight.get_mut(SlabKey::from_tag(request.tag)) {
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

    /// Returns true if a write with this result may take effect after newer writes of other hosts,
    /// which are not held back, or after its namespace was removed and added again
    /// (docs/design/decisions/0004-replay.md).
    pub(super) fn may_come_late(&self, request: &InFlight, answer: Result<(), BlockError>) -> bool {
        let ends_early = request.given_up || self.work.waits.is_some() || self.work.deaths;
        match answer {
            Err(BlockError::TimedOut | BlockError::Aborted) => !self.work.alone && ends_early,
            Err(BlockError::Gone) => !self.work.alone || self.work.tolerance.may_go(),
            _ => false,
        }
    }

    /// Occasionally cancels a request or a command over extents.
    pub(super) fn cancel_some(&mut self, cx: &mut Context<'_>) {
        let (Way::Remote(channel), Some(gives_up)) = (&mut self.channel, &mut self.gives_up) else {
            return;
        };
        if self.in_flight.is_empty() || !gives_up.prng.chance(1, gives_up.cancel_one_in) {
            return;
        }
        let drawn = usize::try_from(gives_up.prng.below(self.in_flight.len() as u64));
        let mut keys = self.in_flight.iter().map(|(key, _)| key);
        let key = keys.nth(drawn.unwrap_or(0)).expect("fewer than there are");
        drop(keys);
        say(|| format!("{:?}: {} cancels {key:?}", cx.now, self.name));
        let tag_of = |key: SlabKey, known: &InFlight| known.together.unwrap_or(key.tag());
        let known = self.in_flight.get(key).expect("it was found there");
        let tag = tag_of(key, known);
        if channel.cancel(tag, cx) {
            for (key, known) in self.in_flight.iter_mut() {
                known.given_up |= tag_of(key, known) == tag;
            }
        }
    }
}
