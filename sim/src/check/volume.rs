//! Volumes, and what is known of each.

use super::feature::Feature;
use super::plan::Plan;
use crate::client;
use crate::disk::Disk;
use crate::driver::SimDriver;
use crate::oracle::{Content, Oracle, Version};
use crate::rights::Extent;
use base::{Nanos, Prng};
use block::{Device, Dispatcher, Geometry, PathDevice};
use reactor::{Core, PollPolicy};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use switch::{Path, PathRules, limits};
use target::NamespaceOptions;

/// Versions of different volumes differ, so that a block of one is never taken for another's.
const VERSIONS_PER_VOLUME: u64 = 1 << 32;

/// Requests of a core that a path takes at a time: few enough for some to wait. The bytes of each
/// are those that the disk takes.
const PATH_DEPTH: u32 = 32;
const PATH_BYTES: u32 = 1 << 20;

/// A core on which a dispatcher runs.
pub(super) type DispatcherCore = Core<SimDriver, Dispatcher>;

/// The way to a volume in a target's process.
#[derive(Clone, Copy, Debug)]
struct Way {
    path: Path,
    rules: PathRules,
    awaited: bool,
}

impl Way {
    fn draw(plan: &Plan, prng: &mut Prng) -> Option<Self> {
        if !plan.features.contains(&Feature::Paths) {
            return None;
        }
        let paths = Path::ALL.len() as u64;
        let path = usize::try_from(prng.below(paths)).expect("a few");
        let mut entries = || 1 + u32::try_from(prng.below(PATH_DEPTH.into())).expect("a few");
        let (unplug_threshold, table_entries) = (entries(), entries());
        let spread = limits::UNPLUG_DELAY_MAX.0;
        Some(Self {
            path: Path::ALL[path],
            rules: PathRules {
                unplug_threshold,
                unplug_delay: Nanos(prng.below(spread)),
                table_entries,
                handover: Nanos(limits::HANDOVER_MIN.0 + prng.below(spread)),
            },
            awaited: prng.chance(1, 2),
        })
    }
}

/// A volume, and all that is known of its content.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) disk: Disk,
    pub(super) oracle: Rc<RefCell<Oracle>>,
    pub(super) extent: Extent,
    pub(super) uuid: [u8; 16],
    way: Option<Way>,
}

impl Volume {
    /// The volume with this number.
    pub(super) fn new(number: u64, plan: &Plan, prng: &mut Prng) -> Self {
        let geometry = Geometry {
            block_bytes: plan.block_bytes,
            blocks: plan.blocks,
        };
        let volatile = plan.features.contains(&Feature::Cache);
        let blocks = usize::try_from(plan.blocks).expect("a small disk");
        let oracle = Oracle::new(blocks).numbered_from(1 + number * VERSIONS_PER_VOLUME);
        let mut uuid = [0; 16];
        prng.fill(&mut uuid);
        Self {
            disk: Disk::new(geometry, volatile, plan.disk, prng.next_u64()),
            oracle: Rc::new(RefCell::new(if volatile {
                oracle.with_volatile_cache()
            } else {
                oracle
            })),
            extent: Extent::new(blocks),
            way: Way::draw(plan, prng),
            uuid,
        }
    }

    /// The volume as a namespace of a process, and the dispatcher of its path, on a core with this
    /// driver, where that has one.
    pub(super) fn as_namespace(
        &self,
        nsid: u32,
        driver: impl FnOnce() -> SimDriver,
    ) -> (NamespaceOptions, Option<DispatcherCore>) {
        let disk = Arc::new(self.disk.clone());
        let options = |device| NamespaceOptions::new(nsid, device, self.uuid);
        let Some(way) = self.way else {
            return (options(disk), None);
        };
        let path = PathDevice::unattended(disk, way.path, way.rules);
        let path = path.expect("good rules");
        let path = path.with_requests(PATH_DEPTH, PATH_BYTES);
        let dispatcher = path.needs_dispatcher().then(|| {
            let mut driver = driver();
            let dispatcher = path.dispatcher(&mut driver).expect("a disk opens");
            Core::new(driver, dispatcher, PollPolicy::Never)
        });
        let path = if way.awaited { path } else { path.unawaited() };
        (options(Arc::new(path)), dispatcher)
    }

    pub(super) fn lose_power(&self) {
        self.disk.lose_power();
        self.oracle.borrow_mut().power_lost();
    }

    /// Its size begins to change. Blocks that go become zeroes.
    pub(super) fn begin_resize(&self, blocks: usize) -> Option<(Range<usize>, Version)> {
        let before = self.extent.blocks();
        self.extent.begin();
        let gone = blocks..before;
        (!gone.is_empty()).then(|| {
            let mut oracle = self.oracle.borrow_mut();
            (gone.clone(), oracle.begin_write(gone, Content::Zeroes))
        })
    }

    /// It has the size that its disk has now.
    pub(super) fn end_resize(&self, gone: Option<(Range<usize>, Version)>) {
        let blocks = self.disk.geometry().blocks;
        let blocks = usize::try_from(blocks).expect("a small disk");
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

    /// Every block is what it may be.
    pub(super) fn check(&self) {
        let mut oracle = self.oracle.borrow_mut();
        let began = oracle.begin_read();
        let blocks = usize::try_from(self.disk.geometry().blocks);
        for block in 0..blocks.expect("a small disk") {
            let bytes = self.disk.block(block);
            let version = client::version_of(block, &bytes);
            assert!(
                oracle.allows(block, began, version),
                "at the end block {block} holds version {version}; allowed were {:?}",
                oracle.allowed(block, began).collect::<Vec<_>>()
            );
        }
        oracle.end_read(began);
    }
}
