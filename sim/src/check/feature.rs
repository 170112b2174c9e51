//! The features of a run. Every seed draws some of them, so that each is met alone, and with every
//! other.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Something that makes a run harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// The network splits what is sent into pieces, and delays them.
    Pieces,
    /// It cuts connections at any byte.
    Cuts,
    /// Some cuts take all connections of a host with them.
    Partitions,
    /// Some cuts are silent: only keep-alive notices them.
    Silence,
    /// It refuses connects.
    Refusals,
    /// Header and data digests.
    Digests,
    /// It flips bits; only with digests.
    Flips,
    /// Cores are held up now and then, as by other threads.
    Stalls,
    /// Cores stop for many seconds, and their clock has jumped when they go on.
    Pauses,
    /// The disk takes a while for each request.
    Slow,
    /// It takes very long for some.
    Late,
    /// It fails requests, some half done.
    Errors,
    /// It has a write cache.
    Cache,
    /// The target crashes and comes back.
    TargetCrashes,
    /// So does the machine below it: what the disk had not flushed may be gone.
    PowerLoss,
    /// The target comes back with another volume in the place of one.
    OtherVolume,
    /// Hosts crash, and others come in their place.
    HostCrashes,
    /// Knobs of the target change.
    Knobs,
    /// The target is not ours: it cannot end controllers.
    Foreign,
    /// Transfers, capsules and buffers are small, so that commands are split and wait.
    Small,
    /// A host on a subsystem of its own changes what it sends at random, and is sent changed
    /// answers.
    Liar,
    /// Applications ask for nothing for longer than keep-alives may be apart.
    Rests,
    /// There are several targets, and each host has applications on all of them.
    Targets,
    /// Some hosts have switchboards: classes, lanes, steering, threads that move.
    Switched,
    /// Socket buffers are small, and sends are taken in part.
    Windows,
    /// Cores that could sleep poll now and then.
    Polls,
    /// Clocks of machines jump ahead.
    Jumps,
    /// Cores have few buffers.
    Starved,
    /// Writes have an effect on some blocks before they end.
    Tears,
    /// Devices are shared by tokens.
    Tokens,
    /// The tenants of hosts, and their permissions, change.
    Rights,
    /// Volumes are resized.
    Resizes,
    /// Namespaces are removed, and come again.
    Removals,
    /// Hosts are denied a subsystem, and are allowed again.
    Denials,
    /// Hosts keep SQ flow control.
    FlowControl,
    /// Applications read and write several extents by one command.
    Extents,
    /// Cores of a target get to devices by an I/O path that they share.
    Paths,
    /// Applications set limits for requests, and cancel some.
    GiveUps,
    /// Hosts fail requests when they have been without a connection for a while, and go on trying.
    KeepReconnecting,
    /// Single cores of hosts stop for many seconds, while the others go on; and all but those of its
    /// controllers right before a target crashes.
    CorePauses,
    /// The applications of some hosts flush as often as they do anything else, and have little under
    /// way.
    Syncs,
    /// Applications close their channels, and open others in the place of these.
    Reopens,
    /// Targets keep pages of their volumes in caches, which write back later and are gone with the
    /// process.
    PageCache,
    /// Subsystems are removed, and come again.
    Subsystems,
    /// Threads of some hosts get to their namespaces by an I/O path that they share.
    HostPaths,
    /// Targets that come back after a crash grant other I/O queues, queue entries and transfers than
    /// before, and some take other commands.
    OtherLimits,
    /// Some of the I/O paths that threads of a host share lead over a switchboard.
    SwitchedPaths,
    /// Threads that share an I/O path die in the middle of what they do, dispatchers too, and others come
    /// in the place of those that ask for something.
    ThreadDeaths,
    /// The applications of some hosts write more than one command takes, flush it, and have nothing
    /// else under way meanwhile; targets lose power in the middle.
    Splits,
}

impl Feature {
    /// Each with its name.
    pub const ALL: [(Self, &'static str); 49] = [
        (Self::Pieces, "pieces"),
        (Self::Cuts, "cuts"),
        (Self::Partitions, "partitions"),
        (Self::Silence, "silence"),
        (Self::Refusals, "refusals"),
        (Self::Digests, "digests"),
        (Self::Flips, "flips"),
        (Self::Stalls, "stalls"),
        (Self::Pauses, "pauses"),
        (Self::Slow, "slow"),
        (Self::Late, "late"),
        (Self::Errors, "errors"),
        (Self::Cache, "cache"),
        (Self::TargetCrashes, "target-crashes"),
        (Self::PowerLoss, "power-loss"),
        (Self::OtherVolume, "other-volume"),
        (Self::HostCrashes, "host-crashes"),
        (Self::Knobs, "knobs"),
        (Self::Foreign, "foreign"),
        (Self::Small, "small"),
        (Self::Liar, "liar"),
        (Self::Rests, "rests"),
        (Self::Targets, "targets"),
        (Self::Switched, "switched"),
        (Self::Windows, "windows"),
        (Self::Polls, "polls"),
        (Self::Jumps, "jumps"),
        (Self::Starved, "starved"),
        (Self::Tears, "tears"),
        (Self::Tokens, "tokens"),
        (Self::Rights, "rights"),
        (Self::Resizes, "resizes"),
        (Self::Removals, "removals"),
        (Self::Denials, "denials"),
        (Self::FlowControl, "flow-control"),
        (Self::Extents, "extents"),
        (Self::Paths, "paths"),
        (Self::GiveUps, "give-ups"),
        (Self::KeepReconnecting, "keep-reconnecting"),
        (Self::CorePauses, "core-pauses"),
        (Self::Syncs, "syncs"),
        (Self::Reopens, "reopens"),
        (Self::PageCache, "page-cache"),
        (Self::Subsystems, "subsystems"),
        (Self::HostPaths, "host-paths"),
        (Self::OtherLimits, "other-limits"),
        (Self::SwitchedPaths, "switched-paths"),
        (Self::ThreadDeaths, "thread-deaths"),
        (Self::Splits, "splits"),
    ];

    /// The name by which it is left out.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(feature, _)| *feature == self);
        found.map_or("", |(_, name)| name)
    }

    /// Returns the feature that it needs to have any effect.
    const fn needs(self) -> Option<Self> {
        match self {
            Self::Partitions | Self::Silence => Some(Self::Cuts),
            Self::Flips => Some(Self::Digests),
            Self::Tears => Some(Self::Slow),
            Self::OtherVolume | Self::PowerLoss | Self::OtherLimits | Self::Splits => {
                Some(Self::TargetCrashes)
            }
            // Others have one core.
            Self::SwitchedPaths | Self::ThreadDeaths => Some(Self::HostPaths),
            Self::CorePauses => Some(Self::Switched),
            _ => None,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(feature, _)| *feature).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(_, name)| *name).collect();
            format!(
                "there is no feature {text:?}; those of a run are {}",
                names.join(", ")
            )
        })
    }
}

/// Returns those of `features` that have what they need.
pub(super) fn complete(mut features: BTreeSet<Feature>) -> BTreeSet<Feature> {
    let has = features.clone();
    features.retain(|feature| feature.needs().is_none_or(|needed| has.contains(&needed)));
    if has.contains(&Feature::Syncs) {
        // Both are what applications do beside their Flushes.
        features.remove(&Feature::Splits);
    }
    features
}
