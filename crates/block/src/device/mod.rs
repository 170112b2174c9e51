//! The device contract.
//!
//! A [`Device`] is what is shared; it is opened once on every core that uses it, and the
//! [`Channel`] that this gives is the only thing the I/O path touches. The same contract serves
//! memory, files, an emulated flash, any of them behind layers, and a namespace on another machine.

pub(crate) mod copy;
pub mod file;
pub mod flash;
mod null;
mod ram;
mod service_time;

pub use file::{FileDevice, FileOptions};
pub use flash::Flash;
pub use null::Null;
pub use ram::Ram;

use crate::extents::Extents;
use crate::request::{BlockError, Completion, Operation, Request};
use base::{Nanos, Time};
use reactor::{Context, Driver, Guard, IoSlice, RegionHandle};
use std::io;

/// Size and block size of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a logical block in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Number of logical blocks.
    pub blocks: u64,
}

impl Geometry {
    /// Size in bytes (saturating).
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes as u64)
    }

    /// Returns true if the device went away, as a remote namespace can: it has no block.
    #[must_use]
    pub const fn is_gone(self) -> bool {
        self.blocks == 0
    }
}

/// Capabilities of a device beyond reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Has a volatile write cache: data is stable only after Flush or with FUA.
    pub volatile_cache: bool,
    /// Refuses writes.
    pub read_only: bool,
    /// The device gives deallocated space back to the file system.
    pub thin: bool,
    /// The most data that a request may carry, in bytes; more must be split. Operations without
    /// data may name any range.
    pub max_transfer_bytes: u32,
    /// Bytes that are best read and written together, aligned to their size (0: no preference).
    pub preferred_bytes: u32,
    /// The most extents of one command ([`Extents`]); 0 for a device that takes none.
    pub extents_max: u32,
}

/// The reason for which a device could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Something about a file or block device.
    #[error("{what}: {source}; {remedy}")]
    Io {
        /// The attempt, with the path.
        what: String,
        /// The kernel's reason.
        source: io::Error,
        /// The remedy for the operator.
        remedy: &'static str,
    },
    /// The options ask for a device that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Its target grants no further queue: channels that are open can be shared instead.
    #[error("{0}")]
    NoQueue(String),
    /// Memory is short.
    #[error(transparent)]
    Memory(#[from] reactor::memory::RegionError),
}

/// The life of a device's volatile caches: with its end, what was acknowledged and not flushed may be
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLife {
    /// Nothing that was acknowledged is lost before this machine ends.
    Machine,
    /// One with this number: another number is another life.
    Of(u64),
    /// The device does not tell one life from the next.
    Unknown,
}

/// Time that a device itself took, apart from the software above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// Requests that it carried out and timed since it was made: all, or some of them. Each extent of a
    /// command is one.
    pub requests: u64,
    /// Sum of the times from their arrival at the device to their end: of the extents of a command,
    /// each takes as long as the device keeps it waiting.
    pub took: Nanos,
}

/// A block device, shared by every core.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Size and block size now. The block size never changes; the size does only by
    /// [`resize`](Self::resize), or by what is behind the device.
    fn geometry(&self) -> Geometry;

    /// Returns the capabilities of the device; they never change.
    fn capabilities(&self) -> Capabilities;

    /// Returns false if the device answers this operation with [`BlockError::Unsupported`].
    fn supports(&self, operation: Operation) -> bool {
        let _ = operation;
        true
    }

    /// Opens it on the calling core.
    ///
    /// # Errors
    /// When what is behind the device cannot be opened.
    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError>;

    /// Returns true if a channel that answers [`BlockError::Gone`] has lost only its own way to the
    /// device, so that another channel may carry the request out.
    fn outlives_channels(&self) -> bool {
        false
    }

    /// Losses of the device's volatile cache that a Flush has reported, as its channels
    /// [count](Channel::losses) them: a client that begins now is not told of these, and of every
    /// later one.
    fn cache_losses(&self) -> u32 {
        0
    }

    /// Returns the present life of the device's volatile caches, for clients that outlive this
    /// process: it is another one than before if what they had not flushed may be lost.
    fn cache_life(&self) -> CacheLife {
        CacheLife::Machine
    }

    /// Another process has written to the device in the present [life](Self::cache_life) for a client
    /// that this one serves now: with the end of this life, writes of that client may be lost, too.
    fn inherit_writes(&self) {}

    /// Returns the time that the device itself took; `None` where only the software could tell.
    fn device_time(&self) -> Option<DeviceTime> {
        None
    }

    /// Changes the number of blocks. Content within both sizes stays; new blocks read as zeroes.
    /// Called only while no channel has a request in flight; channels are opened anew afterwards.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a device with a size that cannot be set.
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let _ = blocks;
        Err(DeviceError::Invalid(format!("{self:?} cannot be resized")))
    }

    /// Makes `len` bytes from `offset` on read as zeroes, on stable storage: the old content is never
    /// seen again, and the rest of a block that the range has a part of stays. Takes its time. Called
    /// while no channel has a request for a block of the range, and none submits one; requests for
    /// other blocks go on meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a range that is not within the device, or a device that cannot
    /// do it; [`DeviceError::Io`].
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _ = (offset, len);
        Err(DeviceError::Invalid(format!("{self:?} cannot be erased")))
    }
}

/// Checks that `len` bytes from `offset` on are within a device.
///
/// # Errors
/// [`DeviceError::Invalid`] where they are not.
pub(crate) fn check_within(geometry: Geometry, offset: u64, len: u64) -> Result<(), DeviceError> {
    let end = offset.checked_add(len);
    if end.is_some_and(|end| end <= geometry.bytes()) {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "{len} bytes from byte {offset} on do not lie within a device of {}",
        geometry.bytes()
    )))
}

/// The answer to a submitted request.
#[derive(Debug)]
pub enum Submit<R = Request, D = Completion> {
    /// The request is done already.
    Done(D),
    /// Its completion will be [reaped](Channel::reap).
    Queued,
    /// The channel has no room for the request now; submit it again after the next completion.
    Busy(R),
}

/// The answer to a submitted command over extents, which will be reaped by
/// [`reap_extents`](Channel::reap_extents) where it is queued.
pub type SubmitExtents = Submit<Extents, Extents>;

/// One core's way into a device.
///
/// # Contract
/// Every request completes exactly once, by `Done` or through [`reap`](Self::reap); its data comes
/// back with it. No address, length or order of calls makes a channel panic. A channel checks its
/// own range. After [`BlockError::Gone`] all further requests fail the same way, for good or until
/// the channel [is back](Self::is_back).
pub trait Channel: std::fmt::Debug {
    /// Takes a request.
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit;

    /// Takes a command over several extents; only of a device with
    /// [`extents_max`](Capabilities::extents_max) above 0.
    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        let _ = cx;
        SubmitExtents::Done(command.ended(Err(BlockError::Unsupported)))
    }

    /// Takes the next finished command over several extents.
    fn reap_extents(&mut self) -> Option<Extents> {
        None
    }

    /// Sends the requests that were gathered; called once after a run of submissions.
    fn kick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Has requests leave at the next [`kick`](Self::kick) that an [I/O path](crate::PathDevice)
    /// holds back in its plug, those of other threads too: one waits for them.
    fn unplug(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Returns true if an operation of this namespace is the channel's; the core passes its
    /// completion on to [`complete`](Self::complete).
    fn owns(&self, op_namespace: reactor::OpNamespace) -> bool {
        let _ = op_namespace;
        false
    }

    /// An operation that this channel handed to the driver has completed.
    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        let _ = (completion, cx);
    }

    /// Gives up the request or command over extents with this tag, which ends with
    /// [`BlockError::Aborted`] soon, or with its answer where that comes first; it is not known then
    /// if a write was done. Returns false where there is none, or the device cannot.
    fn cancel(&mut self, tag: u64, cx: &mut Context<'_>) -> bool {
        let _ = (tag, cx);
        false
    }

    /// Takes the next finished request.
    fn reap(&mut self) -> Option<Completion> {
        None
    }

    /// Losses of the device's volatile cache that were known when the Flush was done that was
    /// [reaped](Self::reap) last; before the first one, those that other channels have reported.
    /// `None` for a channel that counts none.
    ///
    /// A channel fails a Flush with [`BlockError::CacheLost`] where the number is not that of the
    /// Flush before. An owner that carries Flushes of several others by one channel tells each of
    /// them of every loss.
    fn losses(&self) -> Option<u32> {
        None
    }

    /// Fires what is due. Called once each turn of the core, while a request is in the channel or
    /// it has a [`deadline`](Self::deadline), and after each operation that completed.
    fn tick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Memory for `bytes` bytes of a request's data that this channel need not copy; `None` where
    /// it has none of its own (left), and the core's buffers are as good.
    fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        let _ = bytes;
        None
    }

    /// Returns true if another thread of this process answers what is outstanding: a thread that
    /// polled for the answers would take the processor from it.
    fn is_served_elsewhere(&self) -> bool {
        false
    }

    /// Returns true if a channel that answered [`BlockError::Gone`] carries requests out again, as
    /// that of a namespace does with its target back.
    fn is_back(&self) -> bool {
        false
    }

    /// Returns the time at which [`tick`](Self::tick) must run at the latest; [`Time::NEVER`] for
    /// never, until the next request or completed operation. Asked before every sleep of the core,
    /// and when the channel has nothing left to do.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// The device's own memory, where reads and writes are nothing but copies: the transport then
    /// sends from it and receives into it, and the request never comes here.
    fn direct(&self) -> Option<Direct> {
        None
    }

    /// Returns the result of opening the channel; `None` while it is being connected, for which it has
    /// to be [run](Self::tick). A channel that is reconnecting is open.
    fn opened(&self) -> Option<Result<(), DeviceError>> {
        Some(Ok(()))
    }

    /// Starts to end the channel: requests in flight complete (as aborted, if need be), operations
    /// end. Ended when [`closed`](Self::closed) says so. A request that comes later is answered at
    /// once.
    fn close(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Returns true if nothing of the channel is left in the driver, so that it may be dropped once
    /// its finished requests are reaped.
    fn closed(&self) -> bool {
        true
    }

    /// The channel will be dropped, and requests in it may not be over. Keeps a clone of `guard` until
    /// none of them can have an effect or touch its memory, unless that ends when it is dropped. A
    /// channel over another one passes it on.
    fn abandon(&mut self, guard: &Guard) {
        let _ = guard;
    }
}

/// Stands for a channel that was dropped: what is submitted fails.
#[derive(Debug)]
pub(crate) struct Dropped;

impl Channel for Dropped {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        Submit::Done(request.ended(Err(BlockError::Aborted)))
    }
}

/// Memory that is a device.
#[derive(Clone, Debug)]
pub enum Direct {
    /// Block `n` lies at byte `n × block_bytes`.
    Linear(RegionHandle),
    /// Writes are dropped; reads yield zeroes from this region, whatever the address. It is as
    /// long as the largest transfer.
    Null(RegionHandle),
}

/// Checks a request against a device: what every channel does first.
///
/// # Errors
/// [`BlockError::OutOfRange`], [`BlockError::ReadOnly`] or [`BlockError::Malformed`] (also for more
/// data than [`Capabilities::max_transfer_bytes`]).
pub fn check(
    request: &Request,
    geometry: Geometry,
    capabilities: Capabilities,
) -> Result<(), BlockError> {
    if request.operation == Operation::Flush {
        return Ok(());
    }
    if request.operation.is_write() && capabilities.read_only {
        return Err(BlockError::ReadOnly);
    }
    let end = request.lba.0.checked_add(u64::from(request.blocks));
    if end.is_none_or(|end| end > geometry.blocks) {
        return Err(BlockError::OutOfRange);
    }
    let bytes = u64::from(request.blocks) * u64::from(geometry.block_bytes);
    let data = request.data.as_ref().map(|data| data.len() as u64);
    let fits = if request.operation.has_data() {
        data == Some(bytes)
    } else {
        data.is_none()
    };
    let too_long = data > Some(u64::from(capabilities.max_transfer_bytes));
    if request.blocks == 0 || !fits || too_long {
        return Err(BlockError::Malformed);
    }
    Ok(())
}

/// Checks a request as [`check`], and that data can be read into its memory.
pub(crate) fn check_memory(
    request: &mut Request,
    geometry: Geometry,
    capabilities: Capabilities,
) -> Result<(), BlockError> {
    check(request, geometry, capabilities)?;
    let reads = request.operation == Operation::Read;
    if reads && !request.data.as_mut().is_some_and(writable) {
        return Err(BlockError::Malformed);
    }
    Ok(())
}

/// Checks every extent of a command, before any is touched.
///
/// # Errors
/// [`BlockError::Malformed`] for an operation other than Read and Write, for no extent or more than
/// [`Capabilities::extents_max`], and for extents that overlap or do not ascend; for each extent as
/// [`check`].
pub fn check_extents(
    command: &mut Extents,
    geometry: Geometry,
    capabilities: Capabilities,
) -> Result<(), BlockError> {
    let moves = matches!(command.operation, Operation::Read | Operation::Write { .. });
    let count = command.extents.len();
    if !moves || count == 0 || count > capabilities.extents_max as usize {
        return Err(BlockError::Malformed);
    }
    let mut end = 0;
    for (index, extent) in command.extents.iter_mut().enumerate() {
        let request = extent.request(command.operation);
        let checked = check(&request, geometry, capabilities);
        extent.data = request.data;
        checked?;
        if index > 0 && extent.lba.0 < end {
            return Err(BlockError::Malformed);
        }
        end = extent.lba.0 + u64::from(extent.blocks);
    }
    Ok(())
}

/// Returns true if data can be read into the slice: a buffer with several owners may not be
/// changed.
fn writable(slice: &mut IoSlice) -> bool {
    slice.bytes_mut().is_some() || slice.bytes().is_none()
}

/// Refuses block sizes that hosts cannot use.
fn check_block_bytes(block_bytes: u32) -> Result<(), DeviceError> {
    if matches!(block_bytes, 512 | 4096) {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "a block of {block_bytes} bytes is not supported; choose 512 or 4096"
    )))
}

/// Returns the blocks of a device of this kind that has so many bytes.
fn whole_blocks(kind: &str, bytes: u64, block_bytes: u32) -> Result<u64, DeviceError> {
    check_block_bytes(block_bytes)?;
    if bytes == 0 || !bytes.is_multiple_of(block_bytes.into()) {
        return Err(DeviceError::Invalid(format!(
            "a {kind} device of {bytes} bytes is not a whole number of {block_bytes}-byte blocks; \
             choose a positive multiple of {block_bytes}"
        )));
    }
    Ok(bytes / u64::from(block_bytes))
}
