//! Volumes with their oracles.

use super::encryption::Encryption;
use super::feature::Feature;
use super::path::{self, DrawnPath};
use super::plan::Plan;
use crate::client;
use crate::disk::Disk;
use crate::driver::SimDriver;
use crate::oracle::{Content, Oracle, Version};
use crate::rights::Extent;
use base::{Nanos, Prng};
use block::{Cache, CacheOptions, Device, DeviceError, Dispatcher, Geometry, PathDevice};
use reactor::{Core, PollPolicy};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use target::NamespaceOptions;

/// Distance between the versions of different volumes, so that a block of one volume is never taken
/// for a block of another volume.
const VERSIONS_PER_VOLUME: u64 = 1 << 32;

/// A core on which a dispatcher runs.
pub(super) type DispatcherCore = Core<SimDriver, Dispatcher>;

/// A volume with the model of its content.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) disk: Disk,
    pub(super) oracle: Rc<RefCell<Oracle>>,
    pub(super) extent: Extent,
    pub(super) uuid: [u8; 16],
    /// Its encryption; `None` for a volume in clear.
    encryption: Option<Encryption>,
    /// The I/O path to it in a target's process.
    way: Option<DrawnPath>,
    /// Options of its page cache; `None` without a cache.
    pages: Option<CacheOptions>,
    /// That cache, which is in the memory of the serving process.
    cached: RefCell<Option<Cache>>,
}

/// Maximum pages of a cache: some volumes fit in it, some do not.
const PAGES_MAX: u64 = 64;

/// Draws the options of a page cache.
fn draw_cache(plan: &Plan, prng: &mut Prng) -> Option<CacheOptions> {
    if !plan.has_pages() {
        return None;
    }
    let mut up_to = |most: u32| u32::try_from(prng.below(u64::from(most) + 1)).expect("fewer");
    let pages = 1 + up_to(u32::try_from(PAGES_MAX).expect("a few") - 1);
    let dirty_max = up_to(pages);
    Some(CacheOptions {
        dirty_max,
        dirty_background: up_to(dirty_max),
        dirty_expire: Nanos::from_millis(100 << up_to(5)),
        ..CacheOptions::new(pages)
    })
}

impl Volume {
    /// Creates the volume with this number.
    pub(super) fn new(number: u64, plan: &Plan, prng: &mut Prng) -> Self {
        let has = |feature| plan.features.contains(&feature);
        let is_encrypted = has(Feature::Crypt);
        let before = if is_encrypted {
            Encryption::first(plan.block_bytes)
        } else {
            0
        };
        let geometry = Geometry {
            block_bytes: plan.block_bytes,
            blocks: before + plan.blocks,
        };
        let volatile = has(Feature::Cache);
        let forgets = volatile || plan.has_pages();
        let blocks = usize::try_from(plan.blocks).expect("a small disk");
        let oracle = Oracle::new(blocks).numbered_from(1 + number * VERSIONS_PER_VOLUME);
        let mut uuid = [0; 16];
        prng.fill(&mut uuid);
        let seed = prng.next_u64();
        let disk = Disk::new(geometry, volatile, plan.disk, seed);
        let encryption = is_encrypted.then(|| Encryption::create(&disk, plan.block_bytes, seed));
        Self {
            disk,
            encryption,
            oracle: Rc::new(RefCell::new(if forgets {
                oracle.with_volatile_cache()
            } else {
                oracle
            })),
            extent: Extent::new(blocks),
            way: has(Feature::Paths).then(|| DrawnPath::draw(prng)),
            pages: draw_cache(plan, prng),
            cached: RefCell::new(None),
            uuid,
        }
    }

    /// Returns the volume as a namespace of a process, and the dispatcher of its path, if it has
    /// one, on a core with this driver.
    pub(super) fn as_namespace(
        &self,
        nsid: u32,
        driver: impl FnOnce() -> SimDriver,
    ) -> (NamespaceOptions, Option<DispatcherCore>) {
        let disk = self.device();
        let options = |device| NamespaceOptions::new(nsid, device, self.uuid);
        if let Some(cache) = &*self.cached.borrow() {
            // The process had it as a namespace before.
            return (options(Arc::new(cache.clone())), None);
        }
        let Some(way) = self.way else {
            return (options(self.behind_cache(disk, Cache::new)), None);
        };
        let by_path = PathDevice::unattended(disk, way.path, way.rules);
        let by_path = by_path.expect("good rules");
        let path = by_path.with_requests(path::DEPTH, path::BYTES);
        let dispatcher = path.needs_dispatcher().then(|| {
            let mut driver = driver();
            let dispatcher = path.dispatcher(&mut driver).expect("a disk opens");
            Core::new(driver, dispatcher, PollPolicy::Never)
        });
        let path = if way.awaited { path } else { path.unawaited() };
        let over = |_, rules| Cache::over_path(path.clone(), rules);
        let device = self.behind_cache(Arc::new(path.clone()), over);
        (options(device), dispatcher)
    }

    /// Opens the device of the volume.
    fn device(&self) -> Arc<dyn Device> {
        match &self.encryption {
            Some(encryption) => Arc::new(encryption.open(&self.disk)),
            None => Arc::new(self.disk.clone()),
        }
    }

    /// Puts the page cache in front of a device, if the volume has one.
    fn behind_cache(
        &self,
        device: Arc<dyn Device>,
        make: impl FnOnce(Arc<dyn Device>, CacheOptions) -> Result<Cache, DeviceError>,
    ) -> Arc<dyn Device> {
        let Some(rules) = self.pages else {
            return device;
        };
        let cache = make(device, rules).expect("good rules");
        *self.cached.borrow_mut() = Some(cache.clone());
        Arc::new(cache)
    }

    /// Replaces the page cache by that of another process. Returns the one before.
    pub(super) fn replace_cache(&self, cache: Option<Cache>) -> Option<Cache> {
        self.cached.replace(cache)
    }

    /// Returns the same volume without a page cache: several processes serve it.
    pub(super) fn shared(self) -> Self {
        Self {
            pages: None,
            ..self
        }
    }

    /// Notes that the serving process has crashed: the content of its page cache is lost.
    pub(super) fn lose_process(&self) {
        if self.cached.borrow_mut().take().is_some() {
            self.oracle.borrow_mut().power_lost();
        }
    }

    /// Returns its current number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        let Geometry {
            block_bytes,
            blocks,
        } = self.disk.geometry();
        let header = self
            .encryption
            .as_ref()
            .map(|_| Encryption::first(block_bytes));
        blocks - header.unwrap_or(0)
    }

    pub(super) fn lose_power(&self) {
        self.disk.lose_power();
        self.oracle.borrow_mut().power_lost();
    }

    /// Begins a change of its size. Removed blocks become zeroes.
    pub(super) fn begin_resize(&self, blocks: usize) -> Option<(Range<usize>, Version)> {
        let before = self.extent.blocks();
        self.extent.begin();
        let gone = blocks..before;
        (!gone.is_empty()).then(|| {
            let mut oracle = self.oracle.borrow_mut();
            (gone.clone(), oracle.begin_write(gone, Content::Zeroes))
        })
    }

    /// Ends a change of its size, which is now that of its disk.
    pub(super) fn end_resize(&self, gone: Option<(Range<usize>, Version)>) {
        let blocks = usize::try_from(self.blocks()).expect("a small disk");
        if let Some((range, version)) = gone {
            let mut oracle = self.oracle.borrow_mut();
            if blocks <= range.start {
                oracle.acknowledge(range, version, true, 0);
            } else {
                oracle.never(range, version);
            }
        }
        self.extent.end(blocks);
    }

    /// Asserts that every block has an allowed content.
    pub(super) fn check(&self) {
        let mut oracle = self.oracle.borrow_mut();
        let began = oracle.begin_read();
        for block in 0..usize::try_from(self.blocks()).expect("a small disk") {
            let version = |bytes: &[u8]| client::version_of(block, bytes);
            let version = match &self.encryption {
                Some(encryption) => encryption.look_at(&self.disk, block, version),
                None => self.disk.look_at(block, version),
            };
            assert!(
                oracle.allows(block, began, version),
                "at the end block {block} holds version {version}; allowed were {:?}",
                oracle.allowed(block, began).collect::<Vec<_>>()
            );
        }
        oracle.end_read(began);
    }
}
