//! The beginning of a device, as a device of its own: what a namespace shows.
//!
//! A namespace may show less than its device has, and change how much while it is in use. The
//! device itself never changes size, so other namespaces on it are not touched.

use block::{
    Capabilities, Channel, Completion, Device, DeviceError, Direct, Geometry, Request, Submit,
};
use reactor::{Context, Driver};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first blocks of a device.
#[derive(Debug)]
pub struct View {
    device: Arc<dyn Device>,
    blocks: AtomicU64,
}

impl View {
    /// The first `bytes` bytes of `device`, or all of it.
    ///
    /// # Errors
    /// When the device is smaller, or `bytes` is no positive multiple of its block size.
    pub fn new(device: Arc<dyn Device>, bytes: Option<u64>) -> Result<Self, DeviceError> {
        let blocks = blocks_of(&*device, bytes)?;
        Ok(Self {
            device,
            blocks: AtomicU64::new(blocks),
        })
    }
}

/// How many blocks of `device` a namespace of `bytes` bytes shows.
///
/// # Errors
/// As [`View::new`].
pub fn blocks_of(device: &dyn Device, bytes: Option<u64>) -> Result<u64, DeviceError> {
    let geometry = device.geometry();
    let Some(bytes) = bytes else {
        return Ok(geometry.blocks);
    };
    if bytes == 0 || !bytes.is_multiple_of(u64::from(geometry.block_bytes)) {
        return Err(DeviceError::Invalid(format!(
            "a namespace of {bytes} bytes is not a whole number of the device's {}-byte blocks",
            geometry.block_bytes
        )));
    }
    if bytes > geometry.bytes() {
        return Err(DeviceError::Invalid(format!(
            "a namespace of {bytes} bytes does not fit on its device, which has {}",
            geometry.bytes()
        )));
    }
    Ok(bytes / u64::from(geometry.block_bytes))
}

impl Device for View {
    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: self.blocks.load(Ordering::Acquire),
            ..self.device.geometry()
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let channel = self.device.open(driver)?;
        Ok(Box::new(ViewChannel {
            channel,
            geometry: self.geometry(),
            capabilities: self.capabilities(),
        }))
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let bytes = blocks.checked_mul(u64::from(self.geometry().block_bytes));
        let fits = blocks_of(&*self.device, Some(bytes.unwrap_or(u64::MAX)))?;
        self.blocks.store(fits, Ordering::Release);
        Ok(())
    }
}

/// One core's way in.
#[derive(Debug)]
struct ViewChannel {
    channel: Box<dyn Channel>,
    geometry: Geometry,
    capabilities: Capabilities,
}

impl Channel for ViewChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if let Err(error) = block::check(&request, self.geometry, self.capabilities) {
            let Request { tag, data, .. } = request;
            return Submit::Done(Completion {
                tag,
                result: Err(error),
                data,
            });
        }
        self.channel.submit(request, cx)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.channel.kick(cx);
    }

    fn owns(&self, room: reactor::Room) -> bool {
        self.channel.owns(room)
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.channel.complete(completion, cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.channel.reap()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.channel.tick(cx);
    }

    fn deadline(&self) -> base::Time {
        self.channel.deadline()
    }

    fn direct(&self) -> Option<Direct> {
        // Whoever goes around the channel checks the range against the geometry.
        self.channel.direct()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.channel.close(cx);
    }

    fn closed(&self) -> bool {
        self.channel.closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::device::Ram;

    #[test]
    fn a_view_never_shows_more_than_the_device_has() {
        let ram: Arc<dyn Device> = Arc::new(Ram::new(1 << 20, 4096).unwrap());
        let view = View::new(Arc::clone(&ram), Some(1 << 19)).unwrap();
        assert_eq!(view.geometry().blocks, 128);
        view.resize(256).unwrap();
        assert_eq!(view.geometry().blocks, 256);
        assert_eq!(ram.geometry().blocks, 256);
        for bad in [257, 0, u64::MAX] {
            assert!(view.resize(bad).is_err(), "{bad}");
        }
        assert_eq!(view.geometry().blocks, 256);
        assert_eq!(
            View::new(Arc::clone(&ram), None).unwrap().geometry().blocks,
            256
        );
        View::new(Arc::clone(&ram), Some(1000)).expect_err("no whole number of blocks");
        View::new(ram, Some(2 << 20)).expect_err("larger than the device");
    }
}
