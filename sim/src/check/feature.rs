//! The features of a run. Every seed draws some of them, so that each occurs alone and in every
//! combination.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

base::named! {
    /// A condition or disturbance of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Feature {
        /// The network splits sends into pieces and delays them.
        Pieces = "pieces",
        /// The network cuts connections at any byte.
        Cuts = "cuts",
        /// Some cuts break all connections of a host.
        Partitions = "partitions",
        /// Some cuts are silent: only a keep-alive notices them.
        Silence = "silence",
        /// The network refuses connections.
        Refusals = "refusals",
        /// Header and data digests.
        Digests = "digests",
        /// The network flips bits; only with digests or TLS.
        Flips = "flips",
        /// Cores stall at times, as if delayed by other threads.
        Stalls = "stalls",
        /// Cores stop for many seconds, and their clock has advanced when they resume.
        Pauses = "pauses",
        /// Disk requests take time.
        Slow = "slow",
        /// Some disk requests take very long.
        Late = "late",
        /// The disk fails requests, some after a partial effect.
        Errors = "errors",
        /// The disk has a volatile write cache.
        Cache = "cache",
        /// The target crashes and restarts.
        TargetCrashes = "target-crashes",
        /// The target's machine loses power, too: unflushed data of the disk may be lost.
        PowerLoss = "power-loss",
        /// The target restarts with one volume replaced by another volume.
        OtherVolume = "other-volume",
        /// Hosts crash and are replaced by other hosts.
        HostCrashes = "host-crashes",
        /// Knobs of the target change.
        Knobs = "knobs",
        /// The target cannot end controllers, like other implementations.
        Foreign = "foreign",
        /// Transfers, capsules and buffers are small, so that commands are split and wait.
        Small = "small",
        /// A host on its own subsystem exchanges randomly changed PDUs with the target.
        Liar = "liar",
        /// Applications pause for longer than the keep-alive interval.
        Rests = "rests",
        /// There are several targets, and each host has applications on each target.
        Targets = "targets",
        /// Some hosts have switchboards: classes, lanes, steering, moving threads.
        Switched = "switched",
        /// Socket buffers are small, and the network takes sends in part.
        Windows = "windows",
        /// Cores that could sleep poll at times.
        Polls = "polls",
        /// Clocks of machines jump forward.
        Jumps = "jumps",
        /// Cores have few buffers.
        Starved = "starved",
        /// Writes change some blocks before they end.
        Tears = "tears",
        /// Token schedulers share the devices.
        Tokens = "tokens",
        /// Tenants and permissions of hosts change.
        Rights = "rights",
        /// Volumes are resized.
        Resizes = "resizes",
        /// Namespaces are removed and added again.
        Removals = "removals",
        /// Hosts are denied a subsystem and allowed again.
        Denials = "denials",
        /// Hosts use SQ flow control.
        FlowControl = "flow-control",
        /// Applications read and write several extents with one command.
        Extents = "extents",
        /// Cores of a target share an I/O path to each device.
        Paths = "paths",
        /// Applications set timeouts on requests and cancel requests.
        GiveUps = "give-ups",
        /// Hosts fail requests after some time without a connection, and continue to reconnect.
        KeepReconnecting = "keep-reconnecting",
        /// Single cores of hosts stop for many seconds while the other cores run; right before a
        /// target crash, all cores but those of the controllers stop.
        CorePauses = "core-pauses",
        /// Every second request of some hosts' applications is a Flush, with few requests
        /// outstanding.
        Syncs = "syncs",
        /// Applications close their channels and open new ones.
        Reopens = "reopens",
        /// Targets cache pages of their volumes, write them back later, and lose them with the
        /// process.
        PageCache = "page-cache",
        /// Subsystems are removed and added again.
        Subsystems = "subsystems",
        /// Threads of some hosts share an I/O path to each namespace.
        HostPaths = "host-paths",
        /// Targets that restart after a crash grant other numbers of I/O queues, queue entries and
        /// transfer sizes than before, and some support other commands.
        OtherLimits = "other-limits",
        /// Some of the I/O paths shared by threads of a host use a switchboard.
        SwitchedPaths = "switched-paths",
        /// Threads that share an I/O path, and dispatchers, die during their work. Submitting
        /// threads are replaced.
        ThreadDeaths = "thread-deaths",
        /// Applications of some hosts write more than one command can carry, flush it, and have no
        /// other requests outstanding; targets lose power during the write.
        Splits = "splits",
        /// A scripted host resets and shuts down controllers and aborts commands while devices have
        /// its writes, and has commands in flight for a namespace whose addition is rolled back.
        ByHand = "by-hand",
        /// Volumes are encrypted, and changes of their keys are interrupted.
        Crypt = "crypt",
        /// Hosts use TLS, some only where targets require it, and strangers do not prove their names.
        Tls = "tls",
        /// Targets know some or none of the keys of hosts, and this changes.
        Keys = "keys",
        /// Hosts authenticate by DH-HMAC-CHAP, some only where targets require it, and some require
        /// it of targets.
        Chap = "chap",
        /// Other processes take targets over, or fail to.
        TakeOvers = "take-overs",
    }
}

impl Feature {
    /// Returns the feature without which it has no effect.
    const fn needs(self) -> Option<Self> {
        match self {
            Self::Partitions | Self::Silence => Some(Self::Cuts),
            Self::Tears => Some(Self::Slow),
            Self::OtherVolume | Self::PowerLoss | Self::OtherLimits | Self::Splits => {
                Some(Self::TargetCrashes)
            }
            // Other hosts have one core.
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

/// Returns the features of `features` that have an effect together.
pub(super) fn complete(mut features: BTreeSet<Feature>) -> BTreeSet<Feature> {
    let has = features.clone();
    features.retain(|feature| feature.needs().is_none_or(|needed| has.contains(&needed)));
    if !has.contains(&Feature::Digests) && !has.contains(&Feature::Tls) {
        features.remove(&Feature::Flips);
    }
    if !has.contains(&Feature::Tls) && !has.contains(&Feature::Chap) {
        features.remove(&Feature::Keys);
    }
    if has.contains(&Feature::Syncs) {
        // Each of these sets the requests that applications issue in addition to Flushes.
        features.remove(&Feature::Splits);
    }
    if has.contains(&Feature::Flips) {
        // The scripted host does not support digests.
        features.remove(&Feature::ByHand);
    }
    features
}
