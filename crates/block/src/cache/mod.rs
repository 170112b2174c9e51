//! A write-back cache of pages over any device.
//!
//! [`Cache`] is a layer. All threads share its pages of 4 KiB in one region of fixed size; each
//! thread does I/O through its own channels below. Reads fill the cache, sequential streams are
//! [read ahead](switch::read_ahead), and writes complete in the cache. Pages that differ from the
//! device are *dirty*. Above [`dirty_background`](CacheOptions::dirty_background) dirty pages a
//! channel writes back in ascending order; above [`dirty_max`](CacheOptions::dirty_max) writes
//! bypass the cache and complete in the device `[Yu Figure 23]`. A page that is dirty for
//! [`dirty_expire`](CacheOptions::dirty_expire) is written back, together with all pages dirty for
//! at least half of that time, while any thread with an open channel serves its driver.
//!
//! One lock guards all pages. It is held for look-ups and memory copies, never during I/O.
//!
//! # Loss
//! A crash loses completed writes, except FUA writes and writes before a successful Flush.
//! Write-back does not preserve the order of completion. A failed write-back is reported by the
//! next Flush of each channel; its page stays dirty and is written again by later flushes, and when
//! the last channel closes. Pages that still cannot be written stay in the cache until it is
//! dropped.
//!
//! # Coherence
//! A page changes by the read that fills it, a write in the cache, or a request that bypasses the
//! cache. The latter *claims* its range: until it completes, no page of the range is filled,
//! written or written back. Overlapping requests of one channel, one of which writes, are executed
//! in order.
//!
//! A channel that waits for a page or claim of another channel is woken when that ends. So a thread
//! that stops serving its driver with outstanding requests delays other threads that need the same
//! pages.

mod bell;
mod channel;
mod pending;
mod table;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod transfers;

use crate::device::{
    CacheLife, Capabilities, Channel, Device, DeviceError, DeviceTime, Geometry, check_within,
};
use crate::limits::{
    CACHE_BYTES_MAX, CACHE_BYTES_MIN, CACHE_DIRTY_EXPIRE, CACHE_DIRTY_EXPIRE_MAX,
    CACHE_DIRTY_EXPIRE_MIN, CACHE_PIECE_BYTES, CACHE_QUIET_LOOKS, TRANSFER_MAX_BYTES,
};
use crate::path::PathDevice;
use crate::request::{BlockError, Operation};
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use bell::Bell;
use channel::CacheChannel;
use reactor::{Driver, Region};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use switch::ReadAheadRules;
use table::{PAGE_BYTES, Table};

/// Size and rules of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Pages of 4 KiB; at least 1.
    pub pages: u32,
    /// Dirty pages above which a channel writes back; at most `dirty_max`.
    pub dirty_background: u32,
    /// Largest number of pages that may differ from the device; writes to further pages bypass the
    /// cache. At most `pages`.
    pub dirty_max: u32,
    /// Age at which a dirty page is written back: 100 ms to 1 h.
    pub dirty_expire: Nanos,
    /// Rules of read-ahead.
    pub read_ahead: ReadAheadRules,
}

impl CacheOptions {
    /// Options for a cache of `pages` pages: write-back above 10 % dirty pages, at most 40 % dirty,
    /// none for longer than 5 s.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        Self {
            pages,
            dirty_background: pages / 10,
            dirty_max: pages / 5 * 2,
            dirty_expire: CACHE_DIRTY_EXPIRE,
            read_ahead: ReadAheadRules::default(),
        }
    }

    /// Options for a cache of `bytes` bytes, 1 MiB to 1 TiB; a partial page is not used.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for another size.
    pub fn of_bytes(bytes: u64) -> Result<Self, DeviceError> {
        if !(CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&bytes) {
            return Err(DeviceError::Invalid(format!(
                "a cache of {bytes} bytes is not possible; use 1M to 1T, and less than the memory \
                 of the machine"
            )));
        }
        let pages = u32::try_from(bytes / PAGE_BYTES as u64);
        Ok(Self::new(pages.expect("bounded above")))
    }

    /// Checks that the options do not contradict each other.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] with the values to choose.
    pub fn check(&self) -> Result<(), DeviceError> {
        let Self {
            pages,
            dirty_background,
            dirty_max,
            dirty_expire,
            ..
        } = *self;
        if pages == 0 || pages == u32::MAX || dirty_max > pages || dirty_background > dirty_max {
            return Err(DeviceError::Invalid(format!(
                "a cache of {pages} pages cannot have dirty_max {dirty_max} and dirty_background \
                 {dirty_background}; use dirty_background <= dirty_max <= pages, and at least one \
                 page"
            )));
        }
        if !(CACHE_DIRTY_EXPIRE_MIN..=CACHE_DIRTY_EXPIRE_MAX).contains(&dirty_expire) {
            return Err(DeviceError::Invalid(format!(
                "dirty_expire {dirty_expire} is out of range; use {CACHE_DIRTY_EXPIRE_MIN} to \
                 {CACHE_DIRTY_EXPIRE_MAX}"
            )));
        }
        Ok(())
    }
}

/// Counters of a cache since its creation, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheSnapshot {
    /// Pages of reads that were cached.
    pub hits: u64,
    /// Pages of reads that were not cached.
    pub misses: u64,
    /// Pages that were read ahead.
    pub read_ahead: u64,
    /// Pages that were written back.
    pub written_back: u64,
    /// Pages of write-backs that failed.
    pub failed: u64,
    /// Writes that bypassed the cache because of a limit; durable ones are not counted.
    pub bypassed: u64,
    /// Pages that currently differ from the device.
    pub dirty: u32,
    /// Largest number of dirty pages at any time.
    pub dirty_peak: u32,
}

impl CacheSnapshot {
    /// Returns the difference to an earlier snapshot; `dirty` is the current value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
            read_ahead: self.read_ahead - earlier.read_ahead,
            written_back: self.written_back - earlier.written_back,
            failed: self.failed - earlier.failed,
            bypassed: self.bypassed - earlier.bypassed,
            ..*self
        }
    }
}

/// State shared by all channels.
#[derive(Debug)]
struct CacheState {
    table: Table,
    /// Channels that wait for a page or a claim of another channel.
    blocked: Vec<Arc<Bell>>,
    /// Bells of the open channels.
    open: Vec<Arc<Bell>>,
    /// Number of channels, open or closing.
    channels: usize,
    /// Number of failed write-backs, and the error of the last one.
    errors: u64,
    last_error: BlockError,
    /// Number of failed write-backs that a Flush has reported.
    reported: u64,
    /// Channel that writes back because of `dirty_background` or `dirty_expire`, and the time at
    /// which it last ran.
    writer: Option<(Arc<Bell>, Time)>,
    /// True while the device is being changed: no channel reads ahead or writes back on its own.
    held: bool,
    /// Pages are written back as soon as they are dirty.
    drains: bool,
    counters: CacheSnapshot,
}

impl CacheState {
    /// Registers a channel to be woken at the next change.
    fn block(&mut self, bell: &Arc<Bell>) {
        if !self.blocked.iter().any(|other| Arc::ptr_eq(other, bell)) {
            self.blocked.push(Arc::clone(bell));
        }
    }

    /// Wakes all waiting channels after a change.
    fn wake(&mut self) {
        for bell in self.blocked.drain(..) {
            bell.ring();
        }
    }

    /// Removes a channel that accepts no requests any more. The remaining channels write back the
    /// pages that it leaves dirty. Returns true if it was the last one.
    fn leave(&mut self, bell: &Arc<Bell>) -> bool {
        self.open.retain(|other| !Arc::ptr_eq(other, bell));
        if self.table.dirty_pages() > 0 {
            self.open.iter().for_each(|bell| bell.ring());
        }
        self.open.is_empty()
    }

    /// Marks a frame as dirty.
    fn dirty(&mut self, frame: table::Frame, now: Time) {
        self.table.dirty(frame, now);
        let unsaved = self.table.unsaved_pages();
        self.counters.dirty_peak = self.counters.dirty_peak.max(unsaved);
    }
}

/// Parts shared by all channels.
#[derive(Debug)]
struct SharedCache {
    options: CacheOptions,
    region: Region,
    /// Number of its [life](CacheLife), because its pages are memory of this process.
    life: u64,
    /// Number of resizes of the device: channels from before the last one may not use the device.
    resizes: AtomicU64,
    state: Mutex<CacheState>,
}

impl SharedCache {
    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // Related changes happen without a panic in between, so poisoning does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device with a cache. Clones share it.
#[derive(Clone)]
pub struct Cache {
    below: Arc<dyn Device>,
    write_back: Option<Arc<dyn Device>>,
    shared: Arc<SharedCache>,
}

impl Cache {
    /// Creates an empty cache over `below`. Memory is allocated when pages are first used.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for conflicting options, or a device whose largest request is less
    /// than a page; [`DeviceError::Memory`] without enough memory.
    pub fn new(below: Arc<dyn Device>, options: CacheOptions) -> Result<Self, DeviceError> {
        options.check()?;
        let CacheOptions {
            pages, dirty_max, ..
        } = options;
        check_transfer(&*below)?;
        let state = CacheState {
            table: Table::new(pages, dirty_max),
            blocked: Vec::new(),
            open: Vec::new(),
            channels: 0,
            errors: 0,
            last_error: BlockError::WriteFailure,
            reported: 0,
            writer: None,
            held: false,
            drains: false,
            counters: CacheSnapshot::default(),
        };
        let shared = SharedCache {
            options,
            region: Region::new(pages as usize * PAGE_BYTES)?,
            life: RandomState::new().hash_one(pages),
            resizes: AtomicU64::new(0),
            state: Mutex::new(state),
        };
        Ok(Self {
            below,
            write_back: None,
            shared: Arc::new(shared),
        })
    }

    /// Creates a cache over a device with an I/O path whose write-back is sent as
    /// [unawaited](PathDevice::unawaited).
    ///
    /// # Errors
    /// As [`new`](Self::new); also [`DeviceError::Invalid`] for a context look-up over a path that
    /// is [without one](switch::Path::context_look_up).
    pub fn over_path(path: PathDevice, options: CacheOptions) -> Result<Self, DeviceError> {
        if options.read_ahead.context_look_up && !path.path().context_look_up() {
            return Err(DeviceError::Invalid(format!(
                "I/O path {} needs a cache without context look-up; use another path, or disable \
                 context look-up",
                path.path()
            )));
        }
        let write_back = Arc::new(path.clone().unawaited());
        Self::new(Arc::new(path), options)?.with_write_back(write_back)
    }

    /// The same cache; pages are written back through `device`, which leads to the same storage as
    /// the device below, such as a path's [unawaited](crate::PathDevice::unawaited) device.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a device of another size, or one whose largest request is less
    /// than a page.
    pub fn with_write_back(mut self, device: Arc<dyn Device>) -> Result<Self, DeviceError> {
        if device.geometry() != self.below.geometry() {
            return Err(DeviceError::Invalid(format!(
                "{device:?} and {:?} differ in size; write back to the same device",
                self.below
            )));
        }
        check_transfer(&*device)?;
        self.write_back = Some(device);
        Ok(self)
    }

    /// Reads the counters.
    #[must_use]
    pub fn snapshot(&self) -> CacheSnapshot {
        let state = self.shared.lock();
        CacheSnapshot {
            dirty: if mutation::active(Mutation::TakeOverDirty) {
                state.table.dirty_pages()
            } else {
                state.table.unsaved_pages()
            },
            ..state.counters
        }
    }

    /// Writes pages back as soon as they are dirty, instead of by number and age, or ends that.
    pub fn set_draining(&self, drains: bool) {
        let mut state = self.shared.lock();
        state.drains = drains;
        state.open.iter().for_each(|bell| bell.ring());
    }

    /// Returns true while there is a channel, which may write pages back even after its close was
    /// requested.
    #[must_use]
    pub fn has_channels(&self) -> bool {
        self.shared.lock().channels > 0
    }

    /// Returns the size of the cache's largest own transfer in bytes.
    fn piece_bytes(&self) -> usize {
        let most = |device: &Arc<dyn Device>| device.capabilities().max_transfer_bytes as usize;
        let other = self.write_back.as_ref().map_or(usize::MAX, most);
        let bytes = most(&self.below).min(other).min(CACHE_PIECE_BYTES);
        bytes / PAGE_BYTES * PAGE_BYTES
    }

    /// Updates the cache for a range of bytes of the device that now reads as zeroes, or no longer
    /// exists.
    fn zeroed(&self, first: u64, end: u64) {
        let page = PAGE_BYTES as u64;
        let range = first / page..end.div_ceil(page);
        let mut state = self.shared.lock();
        let cached: Vec<_> = state.table.cached(&range).collect();
        for (number, frame) in cached {
            let (start, stop) = (number * page, (number + 1) * page);
            if first <= start && stop <= end {
                state.table.forget(number);
                continue;
            }
            let offset = |at: u64| usize::try_from(at - start).expect("within a page");
            let (from, to) = (offset(first.max(start)), offset(end.min(stop)));
            let at = frame as usize * PAGE_BYTES;
            self.shared.region.handle().zero(at + from, to - from);
        }
        state.wake();
    }

    /// Polls up to [`CACHE_QUIET_LOOKS`] times, a millisecond apart, until `holds` returns true.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if it never does.
    fn wait_until(&self, mut holds: impl FnMut(&mut Table) -> bool) -> Result<(), DeviceError> {
        for look in 0..=CACHE_QUIET_LOOKS {
            if look > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if holds(&mut self.shared.lock().table) {
                return Ok(());
            }
        }
        Err(DeviceError::Invalid(format!(
            "{self:?} has writes to the device in flight; retry, or close its channels first"
        )))
    }

    /// Makes a change while no page is in transfer; waits for that up to a limit.
    fn while_idle(
        &self,
        change: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.shared.lock().held = true;
        let changed = self
            .wait_until(|table| table.is_idle())
            .and_then(|()| change());
        let mut state = self.shared.lock();
        state.held = false;
        state.open.iter().for_each(|bell| bell.ring());
        changed
    }
}

fn check_transfer(device: &dyn Device) -> Result<(), DeviceError> {
    if device.capabilities().max_transfer_bytes as usize >= PAGE_BYTES {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "cannot cache {device:?}: it does not support requests of {PAGE_BYTES} bytes"
    )))
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.shared.options.pages;
        write!(f, "{:?} behind a cache of {pages} pages", self.below)
    }
}

impl Device for Cache {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        let below = self.below.capabilities();
        Capabilities {
            volatile_cache: below.volatile_cache || !below.read_only,
            max_transfer_bytes: below.max_transfer_bytes.min(TRANSFER_MAX_BYTES),
            extents_max: 0,
            ..below
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        CacheChannel::open(self, driver).map(|channel| Box::new(channel) as _)
    }

    fn supports(&self, operation: Operation) -> bool {
        self.below.supports(operation)
    }

    fn cache_losses(&self) -> u32 {
        self.below.cache_losses()
    }

    fn cache_life(&self) -> CacheLife {
        match self.below.cache_life() {
            CacheLife::Machine => CacheLife::Of(self.shared.life),
            CacheLife::Of(below) => CacheLife::Of(self.shared.life ^ below),
            CacheLife::Unknown => CacheLife::Unknown,
        }
    }

    fn inherit_writes(&self) {
        self.below.inherit_writes();
    }

    fn device_time(&self) -> Option<DeviceTime> {
        self.below.device_time()
    }

    /// As of the device below. Waits for pages in transfer, and fails if that takes too long.
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        self.while_idle(|| {
            let before = self.geometry().bytes();
            self.below.resize(blocks)?;
            let after = self.geometry().bytes();
            self.shared.resizes.fetch_add(1, Ordering::Relaxed);
            // Nothing is kept beyond the smaller size, and the rest of its last page is zero.
            self.zeroed(before.min(after), u64::MAX);
            Ok(())
        })
    }

    /// As of the device below. Waits for pages of the range in transfer, and fails if that takes
    /// too long; other pages remain in use.
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_within(self.geometry(), offset, len)?;
        let page = PAGE_BYTES as u64;
        let pages = offset / page..(offset + len).div_ceil(page);
        let mut claim = None;
        let quiet = self.wait_until(|table| {
            claim = claim.take().or_else(|| table.claim(&pages));
            claim.is_some() && table.is_quiet(&pages)
        });
        let erased = quiet.and_then(|()| {
            // Before the device is erased: a Flush would wait for pages that are dirty and claimed.
            self.zeroed(offset, offset + len);
            self.below.erase(offset, len)
        });
        let mut state = self.shared.lock();
        if let Some(claim) = claim {
            state.table.release(claim);
        }
        state.wake();
        erased
    }
}
