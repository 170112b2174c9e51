//! I/O paths of a run: from a target's cores to its volumes, and from a host's threads to their
//! namespaces.

use base::{Nanos, Prng};
use std::fmt;
use switch::{Path, PathRules, PathSpec, limits};

/// Maximum requests of a core in a path at a time: few enough for some to wait. Each may have the
/// disk's maximum transfer.
pub(super) const DEPTH: u32 = 32;
pub(super) const BYTES: u32 = 1 << 20;

/// An I/O path and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnPath {
    /// The kind of path.
    pub path: Path,
    /// Its parameters.
    pub rules: PathRules,
    /// True if a thread or commit waits for writes through it.
    pub awaited: bool,
}

impl DrawnPath {
    /// Returns the path with its parameters in the form of a device's options.
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

/// The I/O path by which threads of a host reach each of their namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// The path. Writes of some threads are awaited even if this is not.
    pub drawn: DrawnPath,
    /// Threads that share the work of an application. The first two use the path.
    pub threads: usize,
    /// Maximum outstanding commands on each connection.
    pub depth: u16,
    /// Threads drive their channels only while they have requests.
    pub only_in_calls: bool,
    /// It uses a switchboard.
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
