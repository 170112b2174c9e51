//! An emulated flash device: memory with the service times of flash, and with interference between
//! requests. `[ReFlex §2.2, Fig. 1, Fig. 3]`
//!
//! Isolation can only be tested on a device with interference; this one interferes on any machine,
//! and equally in the simulator. The [`Profile`] lists its parts, [`Timing`] computes the end of a
//! request, a [`Ram`] device holds the data. A request takes effect when it is submitted, and its
//! completion is held back. Its time starts at the submission, not at the start of the turn, which
//! would hide the software's time before it. Threads share the device like a real one. It is always
//! in the state after long random writes, the worst one, for which a cost model is made.

mod profile;
#[cfg(test)]
mod tests;
mod timing;

pub use profile::{ExtraDelay, Parts, Profile, ProfileError};
pub use timing::{Access, Timing};

use super::service_time::ServiceTime;
use super::{
    Capabilities, Channel, Device, DeviceError, DeviceTime, Geometry, Ram, Submit, SubmitExtents,
};
use crate::delay_queue::DelayQueue;
use crate::extents::Extents;
use crate::limits::LAYER_QUEUE_DEPTH;
use crate::request::{BlockError, Completion, Operation, Request};
use base::Time;
use base::units::Lba;
use reactor::{Context, Driver, OpNamespace};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Bytes of a flash page, the unit of reads and programs.
const PAGE_BYTES: u64 = 4096;

/// An emulated flash device in memory.
#[derive(Debug)]
pub struct Flash {
    ram: Ram,
    profile: Profile,
    timing: Arc<Timing>,
    served: Arc<ServiceTime>,
}

impl Flash {
    /// A zeroed device of `bytes` bytes, in blocks of 512 or 4096 bytes.
    ///
    /// # Errors
    /// As of [`Ram::new`].
    pub fn new(profile: Profile, bytes: u64, block_bytes: u32) -> Result<Self, DeviceError> {
        Ok(Self::over(Ram::new(bytes, block_bytes)?, profile))
    }

    /// An emulated flash device with this memory.
    #[must_use]
    pub fn over(ram: Ram, profile: Profile) -> Self {
        Self {
            ram,
            profile,
            timing: Arc::new(Timing::new(profile.parts())),
            served: Arc::default(),
        }
    }

    /// Returns the timing model, through which the device can be made slower while it runs.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the profile that the device emulates.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.profile
    }
}

impl Device for Flash {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        let preferred_bytes = u32::try_from(PAGE_BYTES).expect("a small number");
        Capabilities {
            preferred_bytes,
            ..self.ram.capabilities()
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(FlashChannel {
            ram: self.ram.open(driver)?,
            timing: self.timing.clone(),
            served: Arc::clone(&self.served),
            block_bytes: self.geometry().block_bytes.into(),
            delayed: DelayQueue::new(),
            delayed_extents: DelayQueue::new(),
            closing: false,
        }))
    }

    fn device_time(&self) -> Option<DeviceTime> {
        Some(self.served.read())
    }

    fn hand_over(&self) -> io::Result<Option<File>> {
        self.ram.hand_over()
    }

    fn carry(&self) -> io::Result<()> {
        self.ram.carry()
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        self.ram.resize(blocks)
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.ram.erase(offset, len)
    }
}

/// One core's channel.
#[derive(Debug)]
struct FlashChannel {
    ram: Box<dyn Channel>,
    timing: Arc<Timing>,
    served: Arc<ServiceTime>,
    block_bytes: u64,
    delayed: DelayQueue,
    delayed_extents: DelayQueue<Extents>,
    closing: bool,
}

impl FlashChannel {
    /// Returns the pages that an operation accesses.
    fn access(&self, operation: Operation, lba: Lba, blocks: u32) -> Access {
        let first = lba.0.saturating_mul(self.block_bytes);
        let end = first.saturating_add(u64::from(blocks) * self.block_bytes);
        let page = first / PAGE_BYTES;
        let pages = end.div_ceil(PAGE_BYTES) - page;
        match operation {
            Operation::Read | Operation::Compare | Operation::Verify => {
                Access::Read { page, pages }
            }
            Operation::Write { .. } => Access::Write { pages },
            Operation::WriteZeroes { .. } | Operation::Deallocate => Access::Map { pages },
            Operation::Flush => Access::Flush,
        }
    }

    fn is_full(&self) -> bool {
        self.delayed.len() + self.delayed_extents.len() >= LAYER_QUEUE_DEPTH
    }
}

impl Channel for FlashChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.is_full() {
            return Submit::Busy(request);
        }
        if self.closing {
            return Submit::Done(request.ended(Err(BlockError::Aborted)));
        }
        let access = self.access(request.operation, request.lba, request.blocks);
        match self.ram.submit(request, cx) {
            // A failed comparison has read; any other refused request took no time.
            Submit::Done(completion)
                if matches!(completion.result, Ok(()) | Err(BlockError::CompareFailure)) =>
            {
                let now = cx.driver.now();
                let end = self.timing.finish(now, access);
                self.served.note(end.since(now), 1);
                if end <= now {
                    return Submit::Done(completion);
                }
                self.delayed.hold(completion, end);
                Submit::Queued
            }
            other => other,
        }
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.ram.owns(op_namespace)
    }

    fn reap(&mut self) -> Option<Completion> {
        self.delayed.pop()
    }

    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        if self.is_full() {
            return SubmitExtents::Busy(command);
        }
        if self.closing {
            return SubmitExtents::Done(command.ended(Err(BlockError::Aborted)));
        }
        match self.ram.submit_extents(command, cx) {
            // The memory below refuses all of a command or none of it.
            SubmitExtents::Done(command) if command.extents.iter().all(|e| e.result.is_ok()) => {
                let operation = command.operation;
                let extents = command.extents.iter();
                let accesses = extents.map(|e| self.access(operation, e.lba, e.blocks));
                let now = cx.driver.now();
                let end = self.timing.finish_all(now, accesses);
                self.served.note(end.since(now), command.extents.len());
                self.delayed_extents.hold(command, end);
                SubmitExtents::Queued
            }
            other => other,
        }
    }

    fn reap_extents(&mut self) -> Option<Extents> {
        self.delayed_extents.pop()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.delayed.fire(cx.now);
        self.delayed_extents.fire(cx.now);
    }

    fn deadline(&self) -> Time {
        self.delayed.next().min(self.delayed_extents.next())
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        // The effects are in place; no request waits for its time any more.
        self.closing = true;
        self.ram.close(cx);
        self.delayed.fire(Time::NEVER);
        self.delayed_extents.fire(Time::NEVER);
    }
}
