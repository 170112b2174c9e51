//! The subject of a simulation: a path, its device, and the threads that use it.

use super::Machine;
use base::Nanos;
use block::device::flash::Profile;
use switch::path::{Path, PathRules};

/// Order of a thread's pages. Each thread has its own part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Sequential.
    Sequential,
    /// Random within its part.
    Random,
}

/// Threads with the same behaviour: each has one outstanding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of threads; at least 1.
    pub threads: usize,
    /// Pages of 4 KiB per request, which begins at a multiple of this in the thread's part; 1
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
    /// This many of a thousand requests of each thread are reads, the rest writes.
    OfRequests(u16),
    /// Every second thread writes, beginning with the second thread, and the rest read: Iozone's
    /// mix, which with one thread consists of reads.
    OfThreads,
}

/// Sizes of a write-back cache, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Pages.
    pub pages: usize,
    /// Number of dirty pages above which they are written back.
    pub dirty_background: usize,
    /// Number of dirty pages from which a writing application first writes some back itself.
    pub dirty_max: usize,
    /// Random streams that are close together are detected as sequential. `[Yu §4.7]`
    pub context_look_up: bool,
}

impl CacheSize {
    /// A cache of `pages` pages, in the proportions of [`block::CacheOptions`].
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

/// All inputs of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The path.
    pub path: Path,
    /// Its parameters; those of the baseline are the parameters for disks.
    pub rules: PathRules,
    /// The device.
    pub device: Profile,
    /// Pages of the device: more than a cache holds.
    pub device_pages: u64,
    /// Costs.
    pub machine: Machine,
    /// The threads.
    pub load: Load,
    /// The cache in front of the path; `None` for direct I/O.
    pub cache: Option<CacheSize>,
    /// Warm-up, not measured.
    pub warm_up: Nanos,
    /// Measured time.
    pub measured: Nanos,
    /// Seed of the order of pages and the variation of costs.
    pub seed: u64,
}
