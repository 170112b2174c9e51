//! Mutations: deliberate bugs in production code, to prove that the simulator's checkers find them.
//!
//! The code calls [`active`], which is a constant `false` without the feature `mutations`. With the
//! feature, at most one mutation is active in a process, after [`set`]. `lab sim mutations` tests
//! all of them.

/// Declares mutations with a description and a name for the command line.
macro_rules! mutations {
    ($(#[doc = $text:literal] $mutation:ident = $name:literal,)*) => {
        /// A deliberate bug that the checkers must find.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutation {
            $(#[doc = $text] $mutation,)*
        }

        impl Mutation {
            /// Every mutation.
            pub const ALL: &[Self] = &[$(Self::$mutation),*];

            /// The name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$mutation => $name,)* }
            }

            /// Returns the description.
            #[must_use]
            pub fn text(self) -> &'static str {
                let text = match self { $(Self::$mutation => $text,)* };
                text.trim()
            }
        }
    };
}

mutations! {
    /// The host's lost writes do not wait for the end of the controller that they were lost with.
    FenceIgnored = "fence-ignored",
    /// A fence that falls takes those of other lost associations with it.
    FenceFellsOthers = "fence-fells-others",
    /// The host takes fences for over at once at a target that cannot end controllers.
    FenceNotTimed = "fence-not-timed",
    /// The target says that a lost controller is over while its device still has writes of it.
    EndControllerEarly = "end-controller-early",
    /// A write that the device has when its connection is lost outlives its controller.
    CommandOutlives = "command-outlives",
    /// A newer write passes one that was lost with a connection and is sent again.
    ReplayNotLocked = "replay-not-locked",
    /// Blocks of a lost write that was reported may be written anew before it is over.
    ReportedNotFenced = "reported-not-fenced",
    /// A newer write passes one that was given up and not answered.
    HoldForgotten = "hold-forgotten",
    /// The host reports a write that was lost with a connection as done.
    LostWriteDone = "lost-write-done",
    /// The host forgets a read that was lost with a connection.
    LostReadForgotten = "lost-read-forgotten",
    /// The host does not notice that a target lost its write cache.
    CacheLossUnnoticed = "cache-loss-unnoticed",
    /// The host reports a Flush as done that promised what a write cache lost.
    CacheLossHidden = "cache-loss-hidden",
    /// A Flush counts for all that was acknowledged until it is done, not until it is asked for.
    FlushCountsLater = "flush-counts-later",
    /// A request keeps what its first commands wrote although a write cache lost it with the connection.
    LostPartsKept = "lost-parts-kept",
    /// The host gives up a target for good although it was told to keep reconnecting.
    LossFinal = "loss-final",
    /// A channel that got no queue does not ask for one again.
    QueueNotAskedFor = "queue-not-asked-for",
    /// A lane of which the controller has the queue still is not opened again.
    LaneNotReopened = "lane-not-reopened",
    /// The host takes another volume under the same NSID for the one that it knew.
    OtherVolumeAccepted = "other-volume-accepted",
    /// The host gives two outstanding commands the same identifier.
    CommandIdReused = "command-id-reused",
    /// The host reports a request as done when its first command is.
    SplitDoneEarly = "split-done-early",
    /// The host tells twice that a request failed, or was carried out in several commands.
    CompletedTwice = "completed-twice",
    /// The host sends the beginning of a write's data for every R2T.
    TransferFromStart = "transfer-from-start",
    /// The host takes no account of MAXH2CDATA.
    MaxH2cDataIgnored = "max-h2c-data-ignored",
    /// The host believes data although its digest does not match.
    HostDigestIgnored = "host-digest-ignored",
    /// The host sends no keep-alive.
    KeepAliveNotSent = "keep-alive-not-sent",
    /// The host uses every entry of a queue, of which one has to stay empty.
    QueueOverfilled = "queue-overfilled",
    /// The target believes data although its digest does not match.
    TargetDigestIgnored = "target-digest-ignored",
    /// The target takes the data of every H2CData PDU for the beginning of its command's.
    DataOffsetIgnored = "data-offset-ignored",
    /// The target asks for more data than the command has.
    R2tBeyondCommand = "r2t-beyond-command",
    /// Every R2T of a command has the same transfer tag.
    TransferTagReused = "transfer-tag-reused",
    /// The target's SQ head stands still.
    SqHeadStands = "sq-head-stands",
    /// The target answers a Flush without asking the device.
    FlushNotDone = "flush-not-done",
    /// The target treats a write with FUA like any other.
    FuaIgnored = "fua-ignored",
    /// The target sends the answer to a Flush twice.
    AnsweredTwice = "answered-twice",
    /// The target does not answer some Compares.
    AnswerDropped = "answer-dropped",
    /// The target sends less of a large read than was asked for.
    ReadCutShort = "read-cut-short",
    /// The target answers with success where its device failed.
    DeviceErrorHidden = "device-error-hidden",
    /// Write Zeroes leaves out its last block.
    ZeroesMissLast = "zeroes-miss-last",
    /// Deallocate takes the block before its range as well.
    DeallocateNeighbour = "deallocate-neighbour",
    /// Compare looks at all blocks but the last.
    CompareMissesLast = "compare-misses-last",
    /// Abort of a command that its device has is answered as done, and its slot is free.
    AbortFreesSlot = "abort-frees-slot",
    /// Abort of a Dataset Management is answered as done while the device has pieces of it.
    AbortAnsweredEarly = "abort-answered-early",
    /// A reset or a shutdown is over while devices have writes of the I/O queues.
    ResetEndsEarly = "reset-ends-early",
    /// Undoing the addition of a namespace forgets its commands that are in flight.
    UndoForgetsCommands = "undo-forgets-commands",
    /// The target lets controllers of hosts that fell silent live on.
    KeepAliveNotKept = "keep-alive-not-kept",
    /// The target takes no keep-alive for a sign of its host.
    KeepAliveNotRestarted = "keep-alive-not-restarted",
    /// Hosts are not told of namespaces that change.
    ChangeNotTold = "change-not-told",
    /// Hosts are not told of a namespace that has become smaller.
    ShrinkNotTold = "shrink-not-told",
    /// Commands enter a namespace that is paused.
    PauseIgnored = "pause-ignored",
    /// Of a command over extents only the first one is held to the permissions.
    ExtentsNotAsked = "extents-not-asked",
    /// Of a command over extents that the controller does not take the host sends only the first one.
    ExtentsLeftOut = "extents-left-out",
    /// The target says of extents that failed that they were done.
    ExtentFailureHidden = "extent-failure-hidden",
    /// The target keeps the buffer of a write that failed.
    BufferKept = "buffer-kept",
    /// The target refuses commands that have to wait for a buffer.
    StallRefused = "stall-refused",
    /// A queue that moves to another core of the target forgets its digests.
    MoveForgetsDigests = "move-forgets-digests",
    /// A tenant's requests are released without their tokens being taken.
    TokensNotTaken = "tokens-not-taken",
    /// Tokens that a thread generates are given out twice.
    TokensGivenTwice = "tokens-given-twice",
    /// A tenant may touch one block more than its range.
    RangeOffByOne = "range-off-by-one",
    /// A change of the access rules does not re-evaluate what a connected host may do.
    RightsNotAsked = "rights-not-asked",
    /// Controllers of a host live on although it was denied the subsystem.
    DeniedHostStays = "denied-host-stays",
    /// A cache evicts pages that differ from the device.
    DirtyPageEvicted = "dirty-page-evicted",
    /// A Flush of a cache does not wait for the pages that it writes back.
    WriteBackNotAwaited = "write-back-not-awaited",
    /// A cache fills and writes pages of a range that a request changes on the device.
    ClaimIgnored = "claim-ignored",
    /// Of the requests of a merged command only the first one is completed.
    MergedEndsFirst = "merged-ends-first",
    /// A path says of requests that failed that they were done.
    PathErrorHidden = "path-error-hidden",
    /// A path forgets what a runner that lost its channel had of other threads.
    BatchNotPutBack = "batch-not-put-back",
    /// A path tells one thread alone of a lost write cache.
    LossToldOnce = "loss-told-once",
    /// A runner of a path that dies tells other threads nothing of what it had of theirs.
    DeadRunnerSilent = "dead-runner-silent",
    /// A channel forgets what it had sent by a queue that it is not granted again.
    UngrantedForgotten = "ungranted-forgotten",
    /// The plug of a path knows no time at which it is due.
    PlugNeverDue = "plug-never-due",
    /// The driver does not watch a socket that is no longer hot.
    ColdSocketForgotten = "cold-socket-forgotten",
    /// The driver sleeps although sockets wait in line for a receive buffer that is free.
    LineForgotten = "line-forgotten",
    /// The driver sleeps although a send in pieces, or a close, is to go on.
    PieceForgotten = "piece-forgotten",
}

impl std::str::FromStr for Mutation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.iter().copied();
        all.find(|mutation| mutation.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|mutation| mutation.name()).collect();
            format!(
                "there is no mutation {text:?}; those that there are: {}",
                names.join(", ")
            )
        })
    }
}

/// True if built with the feature `mutations`.
pub const BUILT_IN: bool = cfg!(feature = "mutations");

#[cfg(feature = "mutations")]
static IN_FORCE: std::sync::OnceLock<Mutation> = std::sync::OnceLock::new();

/// Activates a mutation until the process exits.
///
/// # Panics
/// If another mutation is active.
#[cfg(feature = "mutations")]
pub fn set(mutation: Mutation) {
    let in_force = IN_FORCE.get_or_init(|| mutation);
    assert_eq!(*in_force, mutation, "one mutation in a process");
}

/// Activates a mutation until the process exits.
///
/// # Panics
/// Always: built without mutations ([`BUILT_IN`]).
#[cfg(not(feature = "mutations"))]
pub fn set(mutation: Mutation) {
    panic!("built without mutations, so without {}", mutation.name());
}

/// Returns true if this mutation is active.
#[cfg(feature = "mutations")]
#[must_use]
pub fn active(mutation: Mutation) -> bool {
    IN_FORCE.get() == Some(&mutation)
}

/// Returns false: built without mutations.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
#[must_use]
pub const fn active(_: Mutation) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_mutation_has_a_name_of_its_own_that_parses() {
        let names: BTreeSet<_> = Mutation::ALL.iter().map(|m| m.name()).collect();
        assert_eq!(names.len(), Mutation::ALL.len());
        for &mutation in Mutation::ALL {
            assert_eq!(mutation.name().parse(), Ok(mutation));
            assert!(mutation.text().ends_with('.'), "{}", mutation.text());
        }
        let unknown = "fence".parse::<Mutation>().unwrap_err();
        assert!(unknown.contains("fence-ignored"), "{unknown}");
    }

    #[cfg(not(feature = "mutations"))]
    #[test]
    fn without_the_feature_none_is_ever_in_force() {
        const NONE: bool = active(Mutation::FenceIgnored);
        const { assert!(!NONE && !BUILT_IN) };
        assert!(!Mutation::ALL.iter().any(|&mutation| active(mutation)));
    }

    #[cfg(feature = "mutations")]
    #[test]
    fn one_mutation_is_in_force_from_when_it_is_set() {
        assert!(!active(Mutation::FenceIgnored));
        set(Mutation::FenceIgnored);
        set(Mutation::FenceIgnored);
        let in_force = Mutation::ALL.iter().filter(|&&mutation| active(mutation));
        assert_eq!(in_force.count(), 1);
    }
}
