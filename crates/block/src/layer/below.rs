//! Devices and channels of layers: what they do alike with the device and the channel below.

use crate::{
    CacheLife, Capabilities, Channel, Completion, Device, DeviceError, Geometry, Request, Submit,
};
use base::Time;
use reactor::{Context, Driver, OpNamespace};
use std::fmt;

/// A device over another one, which sees every request and every completion of it.
pub(super) trait LayerDevice: fmt::Debug + Send + Sync {
    /// The device below.
    fn inner(&self) -> &dyn Device;

    /// Makes the layer's channel over one of the device below.
    fn channel(&self, inner: Box<dyn Channel>, driver: &mut dyn Driver) -> Box<dyn Channel>;

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

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let inner = self.inner().open(driver)?;
        Ok(self.channel(inner, driver))
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

    fn unplug(&mut self, cx: &mut Context<'_>) {
        self.inner_mut().unplug(cx);
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

    fn is_back(&self) -> bool {
        self.inner().is_back()
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
