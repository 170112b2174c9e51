//! Channels of layers: what they do alike with the channel below.

use crate::{Capabilities, Channel, Completion, Request, Submit};
use base::Time;
use reactor::{Context, OpNamespace};
use std::fmt;

/// Returns what a layer over such a device can do: it sees requests one by one, so it takes no
/// command over several extents.
pub(super) fn one_by_one(below: Capabilities) -> Capabilities {
    Capabilities {
        extents_max: 0,
        ..below
    }
}

/// A channel over another one, which sees every request and every completion of it.
pub(super) trait LayerChannel: fmt::Debug {
    /// The channel below.
    fn inner(&self) -> &dyn Channel;

    /// The channel below, to be driven.
    fn inner_mut(&mut self) -> &mut dyn Channel;

    /// As [`Channel::submit`].
    fn enter(&mut self, request: Request, cx: &mut Context<'_>) -> Submit;

    /// Takes what the channel below has finished.
    fn collect(&mut self, now: Time);

    /// As [`Channel::reap`].
    fn finished(&mut self) -> Option<Completion>;

    /// Finishes what was held back until `now`.
    fn fire(&mut self, _now: Time) {}

    /// Returns the earliest time at which held requests are due.
    fn due(&self) -> Time {
        Time::NEVER
    }

    /// Called before the channel below is closed.
    fn closing(&mut self) {}

    /// Called when the channel below is closing, and what it had finished is collected.
    fn close_held(&mut self) {}
}

impl<L: LayerChannel> Channel for L {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.enter(request, cx)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.inner_mut().kick(cx);
        self.collect(cx.now);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.inner().owns(op_namespace)
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.inner_mut().complete(completion, cx);
        self.collect(cx.now);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.finished()
    }

    fn losses(&self) -> Option<u32> {
        self.inner().losses()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.inner_mut().tick(cx);
        self.collect(cx.now);
        self.fire(cx.now);
    }

    fn deadline(&self) -> Time {
        self.inner().deadline().min(self.due())
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.closing();
        self.inner_mut().close(cx);
        self.collect(cx.now);
        self.close_held();
    }

    fn closed(&self) -> bool {
        self.inner().closed()
    }
}
