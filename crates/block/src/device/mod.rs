//! The block device traits: [`Device`] and [`Channel`].
//!
//! A [`Device`] is shared by all cores. Each core opens it and gets a [`Channel`], which carries
//! the I/O. Implementations: RAM, files, emulated flash, layers over a device, and remote
//! namespaces.

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
use std::fs::File;
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
    /// Size in bytes, saturating.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes as u64)
    }

    /// Returns true if the device has no blocks because it is no longer available, such as a
    /// removed remote namespace.
    #[must_use]
    pub const fn is_gone(self) -> bool {
        self.blocks == 0
    }
}

/// Capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Has a volatile write cache: data is durable only after Flush or with FUA.
    pub volatile_cache: bool,
    /// Refuses writes.
    pub read_only: bool,
    /// Thin provisioning: deallocated space is returned to the file system.
    pub thin: bool,
    /// Largest data of a request in bytes; longer transfers must be split. Operations without data
    /// may have any range.
    pub max_transfer_bytes: u32,
    /// Preferred size and alignment of transfers in bytes; 0: no preference.
    pub preferred_bytes: u32,
    /// Most extents of a command ([`Extents`]); 0: not supported.
    pub extents_max: u32,
}

/// Why a device could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A system call on a file or block device failed.
    #[error("{what}: {source}; {remedy}")]
    Io {
        /// The failed action, with the path.
        what: String,
        /// The error of the system call.
        source: io::Error,
        /// The remedy for the operator.
        remedy: &'static str,
    },
    /// Invalid options.
    #[error("{0}")]
    Invalid(String),
    /// The target grants no more I/O queues; share an open channel instead.
    #[error("{0}")]
    NoQueue(String),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] reactor::memory::RegionError),
}

/// The epoch of a device's volatile write caches. When it ends, acknowledged but unflushed writes
/// may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLife {
    /// Acknowledged writes are kept until this machine stops.
    Machine,
    /// The epoch with this number.
    Of(u64),
    /// The device does not report epochs.
    Unknown,
}

/// Service time of a device, without the software above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// Timed requests since creation: all, or a sample. Each extent of a command counts.
    pub requests: u64,
    /// Sum of their times from arrival at the device to completion, including waits in the device.
    pub took: Nanos,
}

/// A block device, shared by all cores.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Current size and block size. The block size never changes. The size changes by
    /// [`resize`](Self::resize), or if the underlying storage changes.
    fn geometry(&self) -> Geometry;

    /// Returns the capabilities of the device; they never change.
    fn capabilities(&self) -> Capabilities;

    /// Returns false if this operation fails with [`BlockError::Unsupported`].
    fn supports(&self, operation: Operation) -> bool {
        let _ = operation;
        true
    }

    /// Opens a channel on the calling core.
    ///
    /// # Errors
    /// The underlying storage cannot be opened.
    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError>;

    /// Returns true if a channel that returns [`BlockError::Gone`] has lost only its own
    /// connection, so that another channel may be able to execute the request.
    fn outlives_channels(&self) -> bool {
        false
    }

    /// Number of losses of the device's volatile cache that a Flush has reported, as
    /// [`Channel::losses`] counts them. A new client gets reports only of later losses.
    fn cache_losses(&self) -> u32 {
        0
    }

    /// Returns the current epoch of the device's volatile caches, for clients that outlive this
    /// process: it changes if their unflushed writes may be lost.
    fn cache_life(&self) -> CacheLife {
        CacheLife::Machine
    }

    /// Notes that another process has written to the device in the current
    /// [epoch](Self::cache_life) for a client of this process: those writes may also be lost when
    /// the epoch ends.
    fn inherit_writes(&self) {}

    /// Returns the service time of the device; `None` if it is not measured.
    fn device_time(&self) -> Option<DeviceTime> {
        None
    }

    /// Returns the open file with the content or the lock of this device, for a process that takes
    /// the device over; `None` if it needs none. Both may then use the device, one after the other.
    ///
    /// # Errors
    /// The device cannot be taken over, or no descriptor is left.
    fn hand_over(&self) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// Makes all acknowledged writes durable, as Flush does, without a channel. Blocks. Call it only
    /// while no channel has a request in flight.
    ///
    /// # Errors
    /// Acknowledged writes may be lost.
    fn make_durable(&self) -> io::Result<()> {
        Ok(())
    }

    /// Copies content that is memory of this process to the file that was handed over, and in the
    /// process that takes the device over, from that file. Call it first in the one and then in the
    /// other, while neither has a channel with a request in flight.
    ///
    /// # Errors
    /// Not enough memory.
    fn carry(&self) -> io::Result<()> {
        Ok(())
    }

    /// Changes the number of blocks. Content within both sizes stays; new blocks read as zeroes.
    /// Call it only while no channel has a request in flight, and reopen the channels afterwards.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for an unsupported size or device.
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let _ = blocks;
        Err(DeviceError::Invalid(format!("{self:?} cannot be resized")))
    }

    /// Makes `len` bytes from `offset` read as zeroes, on stable storage. The rest of partly
    /// covered blocks stays. May take long. Call it only while no channel has or submits requests
    /// for blocks of the range; requests for other blocks may continue.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a range beyond the device, or an unsupported device;
    /// [`DeviceError::Io`].
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _ = (offset, len);
        Err(DeviceError::Invalid(format!("{self:?} cannot be erased")))
    }
}

/// Checks that `len` bytes from `offset` are within a device.
///
/// # Errors
/// [`DeviceError::Invalid`] otherwise.
pub(crate) fn check_within(geometry: Geometry, offset: u64, len: u64) -> Result<(), DeviceError> {
    let end = offset.checked_add(len);
    if end.is_some_and(|end| end <= geometry.bytes()) {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "range {offset}+{len} exceeds a device of {} bytes",
        geometry.bytes()
    )))
}

/// The result of submitting a request.
#[derive(Debug)]
pub enum Submit<R = Request, D = Completion> {
    /// The request is complete.
    Done(D),
    /// The request is queued; [`Channel::reap`] returns its completion.
    Queued,
    /// The channel is full; submit the request again after the next completion.
    Busy(R),
}

/// The result of submitting a command over extents; [`reap_extents`](Channel::reap_extents) returns
/// the completion of a queued one.
pub type SubmitExtents = Submit<Extents, Extents>;

/// The channel of one core to a device.
///
/// # Contract
/// Every request completes exactly once, by `Done` or through [`reap`](Self::reap), and its data is
/// returned. No address, length or order of calls makes a channel panic. A channel checks ranges
/// itself. After [`BlockError::Gone`] all requests fail the same way, permanently or until
/// [`is_back`](Self::is_back).
pub trait Channel: std::fmt::Debug {
    /// Submits a request.
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit;

    /// Submits a command over several extents; only for devices with
    /// [`extents_max`](Capabilities::extents_max) > 0.
    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        let _ = cx;
        SubmitExtents::Done(command.ended(Err(BlockError::Unsupported)))
    }

    /// Returns the next completed command over several extents.
    fn reap_extents(&mut self) -> Option<Extents> {
        None
    }

    /// Sends the submitted requests. Call it once after a series of submissions.
    fn kick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Unplugs an [I/O path](crate::PathDevice): the next [`kick`](Self::kick) also sends plugged
    /// requests, including those of other threads.
    fn unplug(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Returns true if operations of this namespace belong to the channel; the core then passes
    /// their completions to [`complete`](Self::complete).
    fn owns(&self, op_namespace: reactor::OpNamespace) -> bool {
        let _ = op_namespace;
        false
    }

    /// Handles a completed operation of this channel.
    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        let _ = (completion, cx);
    }

    /// Cancels the request or command over extents with this tag. It completes with
    /// [`BlockError::Aborted`], or with its result if that arrives first. A cancelled write may
    /// have taken effect. Returns false if there is none, or if not supported.
    fn cancel(&mut self, tag: u64, cx: &mut Context<'_>) -> bool {
        let _ = (tag, cx);
        false
    }

    /// Returns the next completed request.
    fn reap(&mut self) -> Option<Completion> {
        None
    }

    /// Number of losses of the device's volatile cache known at the completion of the last
    /// [reaped](Self::reap) Flush; before the first Flush, the number that other channels have
    /// reported. `None` if the channel does not count losses.
    ///
    /// A Flush fails with [`BlockError::CacheLost`] if the number differs from that of the previous
    /// Flush. If several clients share a channel, its owner must report every loss to each of them.
    fn losses(&self) -> Option<u32> {
        None
    }

    /// Runs timers. Called in each turn of the core while the channel has a request or a
    /// [`deadline`](Self::deadline), and after each completed operation.
    fn tick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Allocates a buffer of `bytes` bytes that this channel transfers without a copy. `None` if it
    /// has no own memory (left); then use the core's buffers.
    fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        let _ = bytes;
        None
    }

    /// Returns true if another thread of this process completes the outstanding requests, so that
    /// polling would take CPU time from it.
    fn is_served_elsewhere(&self) -> bool {
        false
    }

    /// Returns true if a channel works again after [`BlockError::Gone`], for example after a
    /// reconnect.
    fn is_back(&self) -> bool {
        false
    }

    /// Returns the latest time for the next [`tick`](Self::tick); [`Time::NEVER`]: none until the
    /// next request or completed operation. Queried before every sleep of the core.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// The memory of the device, if reads and writes are plain copies. The transport then sends
    /// from it and receives into it, without submitting requests.
    fn direct(&self) -> Option<Direct> {
        None
    }

    /// Returns the result of opening the channel; `None` while it is connecting, which needs
    /// [`tick`](Self::tick). A reconnecting channel counts as open.
    fn opened(&self) -> Option<Result<(), DeviceError>> {
        Some(Ok(()))
    }

    /// Starts closing the channel: requests in flight complete or are aborted, operations end.
    /// Complete when [`closed`](Self::closed) returns true. Later requests fail at once.
    fn close(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Returns true if the channel has no operations in the driver, so that it may be dropped after
    /// its completions are reaped.
    fn closed(&self) -> bool {
        true
    }

    /// Prepares for dropping the channel with outstanding requests. Keeps a clone of `guard` until
    /// none of them can take effect or access its memory, unless that ends when the channel is
    /// dropped. A layer passes it on.
    fn abandon(&mut self, guard: &Guard) {
        let _ = guard;
    }
}

/// Placeholder of a dropped channel; all requests fail.
#[derive(Debug)]
pub(crate) struct Dropped;

impl Channel for Dropped {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        Submit::Done(request.ended(Err(BlockError::Aborted)))
    }
}

/// Memory of a device.
#[derive(Clone, Debug)]
pub enum Direct {
    /// Block `n` is at byte `n × block_bytes`.
    Linear(RegionHandle),
    /// Writes are discarded; all reads use this region of zeroes, which has the size of the largest
    /// transfer.
    Null(RegionHandle),
}

/// Checks a request against a device. Every channel calls this first.
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

/// Checks a request as [`check`], and that its memory is writable for a read.
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

/// Checks all extents of a command.
///
/// # Errors
/// [`BlockError::Malformed`] for operations other than Read and Write, for 0 or more than
/// [`Capabilities::extents_max`] extents, and for extents that overlap or are not in ascending
/// order; for each extent as [`check`].
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

/// Returns true if the slice is writable: a buffer with several owners is not.
fn writable(slice: &mut IoSlice) -> bool {
    slice.bytes_mut().is_some() || slice.bytes().is_none()
}

/// Refuses block sizes other than 512 and 4096.
fn check_block_bytes(block_bytes: u32) -> Result<(), DeviceError> {
    if matches!(block_bytes, 512 | 4096) {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "block size {block_bytes} is not supported; use 512 or 4096"
    )))
}

/// Returns the number of blocks of a device of `bytes` bytes.
fn whole_blocks(kind: &str, bytes: u64, block_bytes: u32) -> Result<u64, DeviceError> {
    check_block_bytes(block_bytes)?;
    if bytes == 0 || !bytes.is_multiple_of(block_bytes.into()) {
        return Err(DeviceError::Invalid(format!(
            "size {bytes} of a {kind} device is not a multiple of the block size; use a positive \
             multiple of {block_bytes}"
        )));
    }
    Ok(bytes / u64::from(block_bytes))
}
