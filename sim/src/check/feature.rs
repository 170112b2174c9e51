//! The features of a run. Every seed draws some of them, so that each is met alone, and with every
//! other.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

base::named! {
    /// Something that makes a run harder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Feature {
        /// The network splits what is sent into pieces, and delays them.
        Pieces = "pieces",
        /// It cuts connections at any byte.
        Cuts = "cuts",
        /// Some cuts take all connections of a host with them.
        Partitions = "partitions",
        /// Some cuts are silent: only keep-alive notices them.
        Silence = "silence",
        /// It refuses connects.
        Refusals = "refusals",
        /// Header and data digests.
        Digests = "digests",
        /// It flips bits; only with digests.
        Flips = "flips",
        /// Cores are held up now and then, as by other threads.
        Stalls = "stalls",
        /// Cores stop for many seconds, and their clock has jumped when they go on.
        Pauses = "pauses",
        /// The disk takes a while for each request.
        Slow = "slow",
        /// It takes very long for some.
        Late = "late",
        /// It fails requests, some half done.
        Errors = "errors",
        /// It has a write cache.
        Cache = "cache",
        /// The target crashes and comes back.
        TargetCrashes = "target-crashes",
        /// So does the machine below it: what the disk had not flushed may be gone.
        PowerLoss = "power-loss",
        /// The target comes back with another volume in the place of one.
        OtherVolume = "other-volume",
        /// Hosts crash, and others come in their place.
        HostCrashes = "host-crashes",
        /// Knobs of the target change.
        Knobs = "knobs",
        /// The target is not ours: it cannot end controllers.
        Foreign = "foreign",
        /// Transfers, capsules and buffers are small, so that commands are split and wait.
        Small = "small",
        /// A host on a subsystem of its own changes what it sends at random, and is sent changed
        /// answers.
        Liar = "liar",
        /// Applications ask for nothing for longer than keep-alives may be apart.
        Rests = "rests",
        /// There are several targets, and each host has applications on all of them.
        Targets = "targets",
        /// Some hosts have switchboards: classes, lanes, steering, threads that move.
        Switched = "switched",
        /// Socket buffers are small, and sends are taken in part.
        Windows = "windows",
        /// Cores that could sleep poll now and then.
        Polls = "polls",
        /// Clocks of machines jump ahead.
        Jumps = "jumps",
        /// Cores have few buffers.
        Starved = "starved",
        /// Writes have an effect on some blocks before they end.
        Tears = "tears",
        /// Devices are shared by tokens.
        Tokens = "tokens",
        /// The tenants of hosts, and their permissions, change.
        Rights = "rights",
        /// Volumes are resized.
        Resizes = "resizes",
        /// Namespaces are removed, and come again.
        Removals = "removals",
        /// Hosts are denied a subsystem, and are allowed again.
        Denials = "denials",
        /// Hosts keep SQ flow control.
        FlowControl = "flow-control",
        /// Applications read and write several extents by one command.
        Extents = "extents",
        /// Cores of a target get to devices by an I/O path that they share.
        Paths = "paths",
        /// Applications set limits for requests, and cancel some.
        GiveUps = "give-ups",
        /// Hosts fail requests when they have been without a connection for a while, and go on
        /// trying.
        KeepReconnecting = "keep-reconnecting",
        /// Single cores of hosts stop for many seconds, while the others go on; and all but those
        /// of its controllers right before a target crashes.
        CorePauses = "core-pauses",
        /// The applications of some hosts flush as often as they do anything else, and have little
        /// under way.
        Syncs = "syncs",
        /// Applications close their channels, and open others in the place of these.
        Reopens = "reopens",
        /// Targets keep pages of their volumes in caches, which write back later and are gone with
        /// the process.
        PageCache = "page-cache",
        /// Subsystems are removed, and come again.
        Subsystems = "subsystems",
        /// Threads of some hosts get to their namespaces by an I/O path that they share.
        HostPaths = "host-paths",
        /// Targets that come back after a crash grant other I/O queues, queue entries and transfers
        /// than before, and some take other commands.
        OtherLimits = "other-limits",
        /// Some of the I/O paths that threads of a host share lead over a switchboard.
        SwitchedPaths = "switched-paths",
        /// Threads that share an I/O path die in the middle of what they do, dispatchers too, and
        /// others come in the place of those that ask for something.
        ThreadDeaths = "thread-deaths",
        /// The applications of some hosts write more than one command takes, flush it, and have
        /// nothing else under way meanwhile; targets lose power in the middle.
        Splits = "splits",
        /// A host by hand resets and shuts down controllers, and aborts commands, while devices have its
        /// writes, and has commands in flight for a namespace of which the addition is undone.
        ByHand = "by-hand",
    }
}

impl Feature {
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
        let found = Self::ALL.into_iter().find(|feature| feature.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no feature {text:?}; those of a run are {names}")
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
    if has.contains(&Feature::Flips) {
        // The host by hand has no digests.
        features.remove(&Feature::ByHand);
    }
    features
}
