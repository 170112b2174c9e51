//! Devices and channels of layers: what they do alike with the device and the channel below.

use crate::delay_queue::DelayQueue;
use crate::limits::LAYER_QUEUE_DEPTH;
use crate::{
    BlockError, CacheLife, Capabilities, Channel, Completion, Device, DeviceError, Geometry,
    Operation, Request, Submit,
};
use base::{Slab, SlabKey, Time};
use reactor::{Context, Driver, Guard, OpNamespace};
use std::fmt;

/// A device over another one, which sees every request and every completion of it.
pub(super) trait LayerDevice: fmt::Debug + Send + Sync {
    /// The device below.
    fn inner(&self) -> &dyn Device;

    /// The layer's part in a channel.
    type Layer: Layer + 'static;

    /// Makes the layer's part in a channel that is opened.
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
            // A layer sees requests one by one.
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

/// The part of a layer in one of its channels: it sees every request and every completion of the
/// channel below.
pub(super) trait Layer: fmt::Debug {
    /// The record of a request that is under way.
    type Note: fmt::Debug;

    /// Completions that it holds itself.
    fn held(&self) -> usize {
        0
    }

    /// Prepares a request that is about to go down. Returns the record of it, or the error of one that
    /// does not.
    fn begin(&mut self, request: &mut Request) -> Result<Self::Note, BlockError>;

    /// Makes a request again what it was: the channel below has no room for it.
    fn undo(&mut self, note: Self::Note, request: &mut Request);

    /// Takes a completion from below.
    fn end(&mut self, note: Self::Note, completion: Completion, now: Time) -> Ended;

    /// Hands out what it held itself, and does no longer.
    fn release(&mut self, _out: &mut DelayQueue) {}

    /// Called before the channel below is closed: nothing is held back any more.
    fn close(&mut self) {}
}

/// The fate of a completion.
#[derive(Debug)]
pub(super) enum Ended {
    /// It is handed out.
    Now(Completion),
    /// It is handed out at that time.
    At(Time, Completion),
    /// The layer holds it itself.
    Held,
}

/// A layer's channel over another one.
#[derive(Debug)]
struct LayerChannel<L: Layer> {
    inner: Box<dyn Channel>,
    /// Requests that are on their way through the channel below. Tags are the submitter's and need not
    /// differ, so that channel is given the numbers of slots, which keep the submitter's tags and what
    /// the layer has to remember.
    in_flight: Slab<(u64, L::Note)>,
    delayed: DelayQueue,
    layer: L,
}

impl<L: Layer> LayerChannel<L> {
    /// Takes a completion from below; `None` where it is held back.
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

    /// Takes what the channel below has finished.
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
