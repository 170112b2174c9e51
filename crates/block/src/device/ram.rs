//! A RAM device: memory of this process, lost when the process exits, unless another one takes its
//! content over.
//!
//! All channels share one [`Region`]. Operations complete at once on the calling core. If several
//! cores write the same block at the same time, a reader may see a mix of both writes.

use super::copy::{copy_from_region, copy_to_region, equals_region};
use super::service_time::ServiceTime;
use super::{
    Capabilities, Channel, Device, DeviceError, DeviceTime, Direct, Geometry, Submit,
    SubmitExtents, check_extents, check_memory, check_within, whole_blocks,
};
use crate::extents::Extents;
use crate::limits::{DISCARD_MIN_BYTES, EXTENTS_MAX, TRANSFER_MAX_BYTES};
use crate::request::{BlockError, Operation, Request};
use reactor::{Context, Driver, Region, RegionHandle};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Step in bytes when content is copied to a region of another size.
const RESIZE_BYTES: usize = 64 * 1024;

/// A channel times one in this number of commands, because reading the clock costs about as much as
/// copying a block.
const TIMED_EVERY: u32 = 64;

/// A RAM device.
#[derive(Debug)]
pub struct Ram {
    block_bytes: u32,
    served: Arc<ServiceTime>,
    memory: Mutex<Memory>,
    handed: Mutex<Option<Handed>>,
}

/// The file through which the content gets from one process to another one.
#[derive(Debug)]
enum Handed {
    Over(File),
    Taken(File),
}

#[derive(Clone, Debug)]
struct Memory {
    region: Region,
    blocks: u64,
}

impl Ram {
    /// A zeroed device of `bytes` bytes with a block size of 512 or 4096. Pages are allocated at
    /// the first write.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a size that is not a positive multiple of the block size;
    /// [`DeviceError::Memory`] without enough memory.
    pub fn new(bytes: u64, block_bytes: u32) -> Result<Self, DeviceError> {
        let blocks = whole_blocks("ram", bytes, block_bytes)?;
        let memory = Memory {
            region: region(bytes)?,
            blocks,
        };
        Ok(Self {
            block_bytes,
            served: Arc::default(),
            memory: Mutex::new(memory),
            handed: Mutex::default(),
        })
    }

    /// A device of the same size with the content that another process
    /// [hands over](Device::hand_over) at this time, and finally by [`carry`](Device::carry).
    ///
    /// # Errors
    /// As of [`new`](Self::new); also for content of another size.
    pub fn taken_over(content: File, bytes: u64, block_bytes: u32) -> Result<Self, DeviceError> {
        let device = Self::new(bytes, block_bytes)?;
        let copied = device.memory().region.copy_from(&content);
        copied.map_err(|source| DeviceError::Io {
            what: "cannot take over a RAM device".to_owned(),
            source,
            remedy: "restart the target instead",
        })?;
        device.set_handed(Handed::Taken(content));
        Ok(device)
    }

    fn set_handed(&self, handed: Handed) {
        *self.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(handed);
    }

    fn memory(&self) -> Memory {
        // A region is replaced as a whole, so poisoning does no harm.
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn region(bytes: u64) -> Result<Region, DeviceError> {
    let bytes = usize::try_from(bytes)
        .map_err(|_| DeviceError::Invalid(format!("{bytes} bytes exceed the address space")))?;
    Ok(Region::for_device(bytes)?)
}

impl Device for Ram {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.memory().blocks,
        }
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn open(&self, _driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let memory = self.memory();
        Ok(Box::new(RamChannel {
            geometry: Geometry {
                block_bytes: self.block_bytes,
                blocks: memory.blocks,
            },
            region: memory.region.handle(),
            served: Arc::clone(&self.served),
            untimed: 0,
        }))
    }

    fn device_time(&self) -> Option<DeviceTime> {
        Some(self.served.read())
    }

    fn hand_over(&self) -> io::Result<Option<File>> {
        let content = Region::unnamed_file()?;
        self.memory().region.copy_to(&content)?;
        self.set_handed(Handed::Over(content.try_clone()?));
        Ok(Some(content))
    }

    fn carry(&self) -> io::Result<()> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        match handed.take() {
            None => Ok(()),
            Some(Handed::Over(content)) => self.memory().region.copy_to(&content),
            Some(Handed::Taken(content)) => self.memory().region.copy_from(&content),
        }
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let bytes = blocks
            .checked_mul(u64::from(self.block_bytes))
            .filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or_else(|| {
            DeviceError::Invalid(format!("invalid size of a RAM device: {blocks} blocks"))
        })?;
        let new = region(bytes)?;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = bytes.min(memory.blocks * u64::from(self.block_bytes));
        let kept = usize::try_from(kept).expect("both sizes are mapped");
        copy_content(&memory.region.handle(), &new.handle(), kept);
        *memory = Memory {
            region: new,
            blocks,
        };
        Ok(())
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_within(self.geometry(), offset, len)?;
        let whole = |bytes| usize::try_from(bytes).expect("it lies within what is mapped");
        let region = self.memory().region.handle();
        region.discard(whole(offset), whole(len));
        Ok(())
    }
}

/// Copies the first `bytes` bytes; zeroes are skipped, so they allocate no pages.
fn copy_content(from: &RegionHandle, to: &RegionHandle, bytes: usize) {
    let mut piece = vec![0; RESIZE_BYTES];
    for at in (0..bytes).step_by(RESIZE_BYTES) {
        let piece = &mut piece[..RESIZE_BYTES.min(bytes - at)];
        from.copy_out(at, piece);
        if piece.iter().any(|&byte| byte != 0) {
            to.copy_in(at, piece);
        }
    }
}

const CAPABILITIES: Capabilities = Capabilities {
    volatile_cache: false,
    read_only: false,
    thin: true,
    max_transfer_bytes: TRANSFER_MAX_BYTES,
    preferred_bytes: 0,
    extents_max: EXTENTS_MAX,
};

/// The channel of one core.
#[derive(Debug)]
struct RamChannel {
    geometry: Geometry,
    region: RegionHandle,
    served: Arc<ServiceTime>,
    /// Number of commands until the next timed one.
    untimed: u32,
}

impl RamChannel {
    /// Executes `requests` requests by `work`, and times a sample of them.
    fn timed<T>(&mut self, requests: usize, cx: &Context<'_>, work: impl FnOnce(&Self) -> T) -> T {
        let Some(untimed) = self.untimed.checked_sub(1) else {
            self.untimed = TIMED_EVERY - 1;
            let begins = cx.driver.now();
            let done = work(self);
            self.served.note(cx.driver.now().since(begins), requests);
            return done;
        };
        self.untimed = untimed;
        work(self)
    }

    fn execute(&self, request: &mut Request) -> Result<(), BlockError> {
        check_memory(request, self.geometry, CAPABILITIES)?;
        let block = u64::from(self.geometry.block_bytes);
        // A Flush ignores its range, which may be anything.
        if request.operation == Operation::Flush {
            return Ok(());
        }
        let whole = |number| usize::try_from(number).expect("the range was checked");
        let (offset, len) = (
            whole(request.lba.0 * block),
            whole(u64::from(request.blocks) * block),
        );
        match request.operation {
            Operation::Flush | Operation::Verify => {}
            Operation::Read => {
                let data = request.data.as_mut().ok_or(BlockError::Malformed)?;
                copy_from_region(&self.region, offset, data, 0, len);
            }
            Operation::Write { .. } => {
                let data = request.data.as_ref().ok_or(BlockError::Malformed)?;
                copy_to_region(data, 0, &self.region, offset, len);
            }
            Operation::Compare => {
                let data = request.data.as_ref().ok_or(BlockError::Malformed)?;
                if !equals_region(data, 0, &self.region, offset, len) {
                    return Err(BlockError::CompareFailure);
                }
            }
            Operation::WriteZeroes {
                deallocate: false, ..
            } if len < DISCARD_MIN_BYTES => {
                self.region.zero(offset, len);
            }
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                self.region.discard(offset, len);
            }
        }
        Ok(())
    }
}

impl Channel for RamChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        let result = self.timed(1, cx, |channel| channel.execute(&mut request));
        Submit::Done(request.ended(result))
    }

    fn submit_extents(&mut self, mut command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        if let Err(error) = check_extents(&mut command, self.geometry, CAPABILITIES) {
            return SubmitExtents::Done(command.ended(Err(error)));
        }
        self.timed(command.extents.len(), cx, |channel| {
            for extent in &mut command.extents {
                let mut request = extent.request(command.operation);
                extent.result = channel.execute(&mut request);
                extent.data = request.data;
            }
        });
        SubmitExtents::Done(command)
    }

    fn direct(&self) -> Option<Direct> {
        Some(Direct::Linear(self.region.clone()))
    }
}
