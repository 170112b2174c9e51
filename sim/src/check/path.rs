//! I/O paths of a run: those of a target's cores to its volumes, and those of a host's threads to their
//! namespaces.

use base::{Nanos, Prng};
use std::fmt;
use switch::{Path, PathRules, PathSpec, limits};

/// Requests of a core that a path takes at a time, at most: few enough for some to wait. The bytes of
/// each are those that the disk takes.
pub(super) const DEPTH: u32 = 32;
pub(super) const BYTES: u32 = 1 << 20;

/// A path, and its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnPath {
    /// The path.
    pub path: Path,
    /// Its rules.
    pub rules: PathRules,
    /// True if a thread or a commit waits for what is written through it.
    pub awaited: bool,
}

impl DrawnPath {
    /// Returns the path and its rules, as a device is told.
    pub(super) const fn spec(self) -> PathSpec {
        PathSpec {
            path: self.path,
            rules: self.rules,
        }
    }

    pub(super) fn draw(prng: &mut Prng) -> Self {
        let paths = Path::ALL.len() as u64;
        let path = usize::try_from(prng.below(paths)).expect("a few");
        let mut entries = || 1 + u32::try_from(prng.below(DEPTH.into())).expect("a few");
        let (unplug_threshold, table_entries) = (entries(), entries());
        let spread = limits::UNPLUG_DELAY_MAX.0;
        Self {
            path: Path::ALL[path],
            rules: PathRules {
                unplug_threshold,
                unplug_delay: Nanos(prng.below(spread)),
                table_entries,
                handover: Nanos(limits::HANDOVER_MIN.0 + prng.below(spread)),
            },
            awaited: prng.chance(1, 2),
        }
    }
}

/// The path by which threads of a host reach each of their namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// The path. What some of the threads write is awaited also where this says that it is not.
    pub drawn: DrawnPath,
    /// Threads that share the work of an application. The first two go by the path.
    pub threads: usize,
    /// Commands outstanding on each connection, at most.
    pub depth: u16,
    /// Threads drive their channels only while they have requests.
    pub only_in_calls: bool,
    /// It leads over a switchboard.
    pub switched: bool,
}

impl HostPath {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        Self {
            drawn: DrawnPath::draw(prng),
            threads: 2 + usize::try_from(prng.below(3)).expect("a few"),
            depth: 2 << prng.below(7),
            only_in_calls: prng.chance(1, 4),
            switched: false,
        }
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.drawn.path)
    }
}
