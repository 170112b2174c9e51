//! A null device: discards writes and reads zeroes, to measure the cost of everything else. It has
//! any size and needs memory only for one largest transfer of zeroes.

use super::{Capabilities, Channel, Device, DeviceError, Direct, Geometry, Submit, check_memory};
use super::{check_within, whole_blocks};
use crate::limits::TRANSFER_MAX_BYTES;
use crate::request::{BlockError, Operation, Request};
use reactor::{Context, Driver, IoSlice, Region, RegionHandle};
use std::sync::atomic::{AtomicU64, Ordering};

/// Zeroes to fill and compare data with, piece by piece.
static ZEROES: [u8; 4096] = [0; 4096];

/// A null device.
#[derive(Debug)]
pub struct Null {
    block_bytes: u32,
    blocks: AtomicU64,
    zeroes: Region,
}

impl Null {
    /// A device of `bytes` bytes with a block size of 512 or 4096.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a size that is not a positive multiple of the block size.
    pub fn new(bytes: u64, block_bytes: u32) -> Result<Self, DeviceError> {
        let blocks = whole_blocks("null", bytes, block_bytes)?;
        Ok(Self {
            block_bytes,
            blocks: AtomicU64::new(blocks),
            zeroes: Region::new(TRANSFER_MAX_BYTES as usize)?,
        })
    }
}

impl Device for Null {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn open(&self, _driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(NullChannel {
            geometry: self.geometry(),
            zeroes: self.zeroes.handle(),
        }))
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        if blocks == 0 || blocks.checked_mul(u64::from(self.block_bytes)).is_none() {
            let message = format!("invalid size of a null device: {blocks} blocks");
            return Err(DeviceError::Invalid(message));
        }
        self.blocks.store(blocks, Ordering::Relaxed);
        Ok(())
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_within(self.geometry(), offset, len)
    }
}

const CAPABILITIES: Capabilities = Capabilities {
    volatile_cache: false,
    read_only: false,
    thin: false,
    max_transfer_bytes: TRANSFER_MAX_BYTES,
    preferred_bytes: 0,
    extents_max: 0,
};

/// The channel of one core.
#[derive(Debug)]
struct NullChannel {
    geometry: Geometry,
    zeroes: RegionHandle,
}

impl NullChannel {
    fn execute(&self, request: &mut Request) -> Result<(), BlockError> {
        check_memory(request, self.geometry, CAPABILITIES)?;
        let Some(data) = &mut request.data else {
            return Ok(());
        };
        match request.operation {
            Operation::Read => {
                fill(data);
                Ok(())
            }
            Operation::Compare if !is_zero(data) => Err(BlockError::CompareFailure),
            _ => Ok(()),
        }
    }
}

fn fill(data: &mut IoSlice) {
    if let Some(bytes) = data.bytes_mut() {
        bytes.fill(0);
        return;
    }
    for at in (0..data.len()).step_by(ZEROES.len()) {
        data.copy_in(at, &ZEROES[..ZEROES.len().min(data.len() - at)]);
    }
}

fn is_zero(data: &IoSlice) -> bool {
    let mut piece = [0; ZEROES.len()];
    (0..data.len()).step_by(ZEROES.len()).all(|at| {
        let piece = &mut piece[..ZEROES.len().min(data.len() - at)];
        data.copy_out(at, piece);
        *piece == ZEROES[..piece.len()]
    })
}

impl Channel for NullChannel {
    fn submit(&mut self, mut request: Request, _cx: &mut Context<'_>) -> Submit {
        let result = self.execute(&mut request);
        Submit::Done(request.ended(result))
    }

    fn direct(&self) -> Option<Direct> {
        Some(Direct::Null(self.zeroes.clone()))
    }
}
