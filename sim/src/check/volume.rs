//! Volumes, and what is known of each.

use super::feature::Feature;
use super::plan::Plan;
use crate::client;
use crate::disk::Disk;
use crate::oracle::{Content, Oracle, Version};
use crate::rights::Extent;
use base::Prng;
use block::{Device, Geometry, PathDevice};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use switch::{Path, PathRules};
use target::NamespaceOptions;

/// Versions of different volumes differ, so that a block of one is never taken for another's.
const VERSIONS_PER_VOLUME: u64 = 1 << 32;

/// Requests of a core that a path takes at a time: few enough for some to wait. The bytes of each
/// are those that the disk takes.
const PATH_DEPTH: u32 = 32;
const PATH_BYTES: u32 = 1 << 20;

/// Returns the path to a volume: one that needs no thread beside those of the cores.
fn path(number: u64, plan: &Plan) -> Option<Path> {
    let paths = plan.features.contains(&Feature::Paths);
    paths.then_some(if number.is_multiple_of(2) {
        Path::Stm
    } else {
        Path::Sync
    })
}

/// A volume, and all that is known of its content.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) disk: Disk,
    pub(super) oracle: Rc<RefCell<Oracle>>,
    pub(super) extent: Extent,
    pub(super) uuid: [u8; 16],
    path: Option<Path>,
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
            path: path(number, plan),
            uuid,
        }
    }

    /// The volume as a namespace.
    pub(super) fn as_namespace(&self, nsid: u32) -> NamespaceOptions {
        NamespaceOptions::new(nsid, self.device(), self.uuid)
    }

    /// The disk, behind its path in the run's process.
    fn device(&self) -> Arc<dyn Device> {
        let disk = Arc::new(self.disk.clone());
        let Some(path) = self.path else { return disk };
        let path = PathDevice::unattended(disk, path, PathRules::default());
        let path = path.expect("the default rules are good");
        Arc::new(path.with_requests(PATH_DEPTH, PATH_BYTES))
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
