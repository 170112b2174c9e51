//! Devices and channels of layers: their common handling of the device and the channel below.

use crate::delay_queue::DelayQueue;
use crate::limits::LAYER_QUEUE_DEPTH;
use crate::{
    BlockError, CacheLife, Capabilities, Channel, Completion, Device, DeviceError, Geometry,
    Operation, Request, Submit,
};
use base::{Slab, SlabKey, Time};
use reactor::{Context, Driver, Guard, OpNamespace};
use std::fmt;

/// A device over another one that handles every request and every completion of it.
pub(super) trait LayerDevice: fmt::Debug + Send + Sync {
    /// The device below.
    fn inner(&self) -> &dyn Device;

    /// The layer's state in a channel.
    type Layer: Layer + 'static;

    /// Creates the layer's state for a channel that is being opened.
    fn layer(&self, driver: &mut dyn Driver) -> Self::Layer;

    /// As [`Device::resize`].
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        self.inner().resize(blocks)
    }

    /// As [`Device::erase`].
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner().erase(offset, len)
    }
}

impl<L: LayerDevice> Device for L {
    fn geometry(&self) -> Geometry {
        self.inner().geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // A layer handles requests one by one.
            extents_max: 0,
            ..self.inner().capabilities()
        }
    }

    fn supports(&self, operation: Operation) -> bool {
        self.inner().supports(operation)
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(LayerChannel {
            inner: self.inner().open(driver)?,
            in_flight: Slab::with_capacity(LAYER_QUEUE_DEPTH),
            delayed: DelayQueue::new(),
            layer: self.layer(driver),
        }))
    }

    fn cache_losses(&self) -> u32 {
        self.inner().cache_losses()
    }

    fn cache_life(&self) -> CacheLife {
        self.inner().cache_life()
    }

    fn inherit_writes(&self) {
        self.inner().inherit_writes();
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        LayerDevice::resize(self, blocks)
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        LayerDevice::erase(self, offset, len)
    }
}

/// The state of a layer in one of its channels: it handles every request and every completion of
/// the channel below.
pub(super) trait Layer: fmt::Debug {
    /// The record of a request in flight.
    type Note: fmt::Debug;

    /// Returns the number of completions that it holds itself.
    fn held(&self) -> usize {
        0
    }

    /// Prepares a request before it is passed down. Returns its record, or the error of a request
    /// that is not passed down.
    fn begin(&mut self, request: &mut Request) -> Result<Self::Note, BlockError>;

    /// Restores a request for which the channel below has no room.
    fn undo(&mut self, note: Self::Note, request: &mut Request);

    /// Handles a completion from below.
    fn end(&mut self, note: Self::Note, completion: Completion, now: Time) -> Ended;

    /// Moves the completions that it no longer holds to the given queue.
    fn release(&mut self, _out: &mut DelayQueue) {}

    /// Called before the channel below is closed: no completion is held any more.
    fn close(&mut self) {}
}

/// What happens to a completion.
#[derive(Debug)]
pub(super) enum Ended {
    /// It is returned now.
    Now(Completion),
    /// It is returned at that time.
    At(Time, Completion),
    /// The layer holds it itself.
    Held,
}

/// A layer's channel over another one.
#[derive(Debug)]
struct LayerChannel<L: Layer> {
    inner: Box<dyn Channel>,
    /// Requests in flight through the channel below. The submitter's tags need not be unique, so
    /// that channel receives slot numbers as tags; each slot keeps the submitter's tag and the
    /// layer's record.
    in_flight: Slab<(u64, L::Note)>,
    delayed: DelayQueue,
    layer: L,
}

impl<L: Layer> LayerChannel<L> {
    /// Handles a completion from below; `None` if it is held back.
    fn finish(&mut self, mut completion: Completion, now: Time) -> Option<Completion> {
        let key = SlabKey::from_tag(completion.tag);
        let (tag, note) = self.in_flight.remove(key)?;
        completion.tag = tag;
        match self.layer.end(note, completion, now) {
            Ended::Now(completion) => return Some(completion),
            Ended::At(time, completion) => self.delayed.hold(completion, time),
            Ended::Held => {}
        }
        None
    }

    /// Collects the completions of the channel below.
    fn collect(&mut self, now: Time) {
        while let Some(completion) = self.inner.reap() {
            if let Some(completion) = self.finish(completion, now) {
                self.delayed.pass(completion);
            }
        }
        self.layer.release(&mut self.delayed);
    }
}

impl<L: Layer> Channel for LayerChannel<L> {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        let waiting = self.delayed.len() + self.layer.held();
        if self.in_flight.is_full() || waiting >= LAYER_QUEUE_DEPTH {
            return Submit::Busy(request);
        }
        let note = match self.layer.begin(&mut request) {
            Ok(note) => note,
            Err(error) => return Submit::Done(request.ended(Err(error))),
        };
        let Ok(key) = self.in_flight.insert((request.tag, note)) else {
            unreachable!("it was asked whether there is room");
        };
        request.tag = key.tag();
        match self.inner.submit(request, cx) {
            Submit::Done(completion) => self
                .finish(completion, cx.now)
                .map_or(Submit::Queued, Submit::Done),
            Submit::Queued => Submit::Queued,
            Submit::Busy(mut request) => {
                if let Some((tag, note)) = self.in_flight.remove(key) {
                    request.tag = tag;
                    self.layer.undo(note, &mut request);
                }
                Submit::Busy(request)
            }
        }
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.inner.kick(cx);
        self.collect(cx.now);
    }

    fn unplug(&mut self, cx: &mut Context<'_>) {
        self.inner.unplug(cx);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.inner.owns(op_namespace)
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.inner.complete(completion, cx);
        self.collect(cx.now);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.delayed.pop()
    }

    fn losses(&self) -> Option<u32> {
        self.inner.losses()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.inner.tick(cx);
        self.collect(cx.now);
        self.delayed.fire(cx.now);
    }

    fn is_back(&self) -> bool {
        self.inner.is_back()
    }

    fn deadline(&self) -> Time {
        self.inner.deadline().min(self.delayed.next())
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.layer.close();
        self.inner.close(cx);
        self.collect(cx.now);
        // The effects are in place; no request waits for its time any more.
        self.delayed.fire(Time::NEVER);
    }

    fn closed(&self) -> bool {
        self.inner.closed()
    }

    fn abandon(&mut self, guard: &Guard) {
        self.inner.abandon(guard);
    }
}
