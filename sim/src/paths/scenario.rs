//! The subject of a simulation: a path, its device, and the threads that use it.

use super::Machine;
use base::Nanos;
use block::device::flash::Profile;
use switch::path::{Path, PathRules};

/// Order of a thread's pages. Each has a part of the device to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Anywhere in its part.
    Random,
}

/// Threads that do the same: each has one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Threads; at least 1.
    pub threads: usize,
    /// Pages of 4 KiB of a request, which begins at a multiple of them in the thread's part; 1
    /// through a cache.
    pub pages: u64,
    /// Order of their pages.
    pub pattern: Pattern,
    /// Operations of the threads.
    pub mix: Mix,
}

/// Reads and writes of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Of a thousand requests of each thread so many are reads, the others writes.
    OfRequests(u16),
    /// Every other thread writes, beginning with the second one, and the others read: Iozone's mix,
    /// which with one thread is of reads alone.
    OfThreads,
}

/// Sizes of a write-back cache, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Pages.
    pub pages: usize,
    /// Dirty pages above which they are written back.
    pub dirty_background: usize,
    /// Dirty pages from which on an application that writes writes some back before.
    pub dirty_max: usize,
    /// Random streams that lie close together are taken for sequential ones. `[Yu §4.7]`
    pub context_look_up: bool,
}

impl CacheSize {
    /// A cache of so many pages, in the proportions of [`block::CacheOptions`].
    ///
    /// # Panics
    /// For 4,294,967,296 pages and more.
    #[must_use]
    pub fn of(pages: usize) -> Self {
        let options = block::CacheOptions::new(u32::try_from(pages).expect("a small cache"));
        Self {
            pages,
            dirty_background: options.dirty_background as usize,
            dirty_max: options.dirty_max as usize,
            context_look_up: false,
        }
    }
}

/// All that a run depends on.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The path.
    pub path: Path,
    /// Its parameters; the baseline has those of disks.
    pub rules: PathRules,
    /// The device.
    pub device: Profile,
    /// Pages of the device: more than a cache holds.
    pub device_pages: u64,
    /// Costs.
    pub machine: Machine,
    /// The threads.
    pub load: Load,
    /// The cache in front of the path; none for direct I/O.
    pub cache: Option<CacheSize>,
    /// Time before what is measured.
    pub warm_up: Nanos,
    /// Measured time.
    pub measured: Nanos,
    /// The order of pages, and the variation of costs.
    pub seed: u64,
}
