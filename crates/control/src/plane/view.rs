//! The beginning of a device, as a device of its own: what a namespace shows.
//!
//! A namespace may show less than its device has, and change how much while it is in use. Where the
//! device is its own, the device grows with it, and blocks that it gives up are zeroed before it shows
//! them again ([`zeroing`](super::zeroing)). A device that others may use stays as it is: each shows what all wrote.

use block::{
    Capabilities, Channel, Completion, Device, DeviceError, Direct, Extents, Geometry, Request,
    Submit, SubmitExtents,
};
use reactor::{Context, Driver};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first blocks of a device.
#[derive(Debug)]
pub(super) struct View {
    device: Arc<dyn Device>,
    blocks: AtomicU64,
    /// End of the blocks that it has had since its given-up blocks were last taken.
    had: AtomicU64,
    /// Other namespaces may use the device, too.
    shared: bool,
}

impl View {
    /// The first `bytes` bytes of `device`, or all of it; whether others may use it, too.
    ///
    /// # Errors
    /// When the device is smaller, or `bytes` is no positive multiple of its block size.
    pub(super) fn new(
        device: Arc<dyn Device>,
        bytes: Option<u64>,
        shared: bool,
    ) -> Result<Self, DeviceError> {
        let blocks = whole_blocks(&*device, bytes)?;
        fits(&*device, blocks)?;
        Ok(Self {
            device,
            blocks: AtomicU64::new(blocks),
            had: AtomicU64::new(blocks),
            shared,
        })
    }

    /// Returns the blocks that it gives up with a size of `blocks`. They keep their content, so that
    /// the resize can be undone.
    pub(super) fn given_up(&self, blocks: u64) -> Range<u64> {
        let end = if self.shared {
            blocks
        } else {
            self.had.load(Ordering::Relaxed)
        };
        blocks..end
    }

    /// Returns the blocks that it has given up, once: the caller has them zeroed before they are shown.
    pub(super) fn take_given_up(&self) -> Range<u64> {
        let blocks = self.geometry().blocks;
        let given_up = self.given_up(blocks);
        self.had.store(blocks, Ordering::Relaxed);
        given_up
    }
}

/// Returns the number of blocks, of the size of `device`'s, in a namespace of `bytes` bytes; all of
/// the device's blocks without a size.
///
/// # Errors
/// When `bytes` is no positive multiple of the block size.
pub(super) fn whole_blocks(device: &dyn Device, bytes: Option<u64>) -> Result<u64, DeviceError> {
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
    Ok(bytes / u64::from(geometry.block_bytes))
}

fn fits(device: &dyn Device, blocks: u64) -> Result<(), DeviceError> {
    let geometry = device.geometry();
    if blocks <= geometry.blocks {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "a namespace of {blocks} blocks does not fit on its device, which has {}",
        geometry.blocks
    )))
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
        if blocks == 0 {
            let reason = "a namespace has at least one block";
            return Err(DeviceError::Invalid(reason.to_owned()));
        }
        if self.shared {
            fits(&*self.device, blocks)?;
        } else if blocks > self.device.geometry().blocks {
            self.device.resize(blocks)?;
        }
        self.blocks.store(blocks, Ordering::Release);
        self.had.fetch_max(blocks, Ordering::Relaxed);
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
            return Submit::Done(request.ended(Err(error)));
        }
        self.channel.submit(request, cx)
    }

    fn submit_extents(&mut self, mut command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        match block::check_extents(&mut command, self.geometry, self.capabilities) {
            Ok(()) => self.channel.submit_extents(command, cx),
            Err(error) => SubmitExtents::Done(command.ended(Err(error))),
        }
    }

    fn reap_extents(&mut self) -> Option<Extents> {
        self.channel.reap_extents()
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.channel.kick(cx);
    }

    fn owns(&self, op_namespace: reactor::OpNamespace) -> bool {
        self.channel.owns(op_namespace)
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
        // A caller that bypasses the channel checks the range against the geometry.
        self.channel.direct()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.channel.close(cx);
    }

    fn closed(&self) -> bool {
        self.channel.closed()
    }

    fn abandon(&mut self, guard: &reactor::Guard) {
        self.channel.abandon(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::device::{Flash, Ram};
    use reactor::{BufferClass, uring};

    #[test]
    fn a_view_of_a_shared_device_never_shows_more_than_it_has() {
        let ram: Arc<dyn Device> = Arc::new(Ram::new(1 << 20, 4096).unwrap());
        let view = View::new(Arc::clone(&ram), Some(1 << 19), true).unwrap();
        assert_eq!(view.geometry().blocks, 128);
        view.resize(256).unwrap();
        assert_eq!(view.geometry().blocks, 256);
        assert_eq!(ram.geometry().blocks, 256);
        for bad in [257, 0, u64::MAX] {
            assert!(view.resize(bad).is_err(), "{bad}");
        }
        assert_eq!(view.geometry().blocks, 256);
        let whole = View::new(Arc::clone(&ram), None, true).unwrap();
        assert_eq!(whole.geometry().blocks, 256);
        View::new(Arc::clone(&ram), Some(1000), true).expect_err("no whole number of blocks");
        View::new(ram, Some(2 << 20), true).expect_err("larger than the device");
    }

    /// It could not outgrow its device, and saw again what it had given up.
    #[test]
    fn a_view_grows_with_its_own_device_and_sees_nothing_again() {
        let ram: Arc<dyn Device> = Arc::new(Ram::new(1 << 20, 4096).unwrap());
        let view = View::new(Arc::clone(&ram), None, false).unwrap();
        let driver = || uring::UringDriver::new(&Default::default()).unwrap();
        let memory = |device: &dyn Device| match device.open(&mut driver()).unwrap().direct() {
            Some(Direct::Linear(region)) => region,
            other => panic!("{other:?}"),
        };
        memory(&view).copy_in(200 * 4096, &[7; 4096]);
        memory(&view).copy_in(0, &[8; 4096]);
        // A resize that is undone has erased nothing.
        let mut block = [1; 4096];
        view.resize(100).unwrap();
        assert_eq!(view.given_up(100), 100..256);
        view.resize(256).unwrap();
        assert!(view.take_given_up().is_empty());
        memory(&view).copy_out(200 * 4096, &mut block);
        assert_eq!(block, [7; 4096]);
        view.resize(100).unwrap();
        assert_eq!(view.take_given_up(), 100..256);
        ram.erase(100 * 4096, 156 * 4096).unwrap();
        assert!(view.take_given_up().is_empty());
        view.resize(512).unwrap();
        assert_eq!(ram.geometry().blocks, 512);
        memory(&view).copy_out(200 * 4096, &mut block);
        assert_eq!(block, [0; 4096]);
        memory(&view).copy_out(0, &mut block);
        assert_eq!(block, [8; 4096]);
        view.resize(0).expect_err("no blocks");
        assert!(view.resize(u64::MAX).is_err());
        assert_eq!(view.geometry().blocks, 512);
    }

    /// It said that it takes commands over extents, as its device does, and refused them.
    #[test]
    fn a_view_is_a_device_like_any_other() {
        let profile = "dram-ssd".parse().unwrap();
        let device = Arc::new(Flash::new(profile, 8 << 20, 4096).unwrap());
        let view = View::new(device, Some(4 << 20), true).unwrap();
        let buffers = [64 << 10, 1 << 20].map(|bytes| BufferClass { bytes, count: 64 });
        let options = uring::Options {
            buffers: buffers.into(),
            ..uring::Options::default()
        };
        let driver = || uring::UringDriver::new(&options).unwrap();
        testing::device::conformance::run(
            driver,
            &view,
            testing::device::conformance::Suite::default(),
        );
    }
}
