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
    /// The host's lost writes do not wait for the end of the controller of their lost connection.
    FenceIgnored = "fence-ignored",
    /// The end of a fence also ends the fences of other lost associations.
    FenceFellsOthers = "fence-fells-others",
    /// The host ends fences immediately at a target without End Controller.
    FenceNotTimed = "fence-not-timed",
    /// The target answers End Controller while the device still has writes of the lost controller.
    EndControllerEarly = "end-controller-early",
    /// A write in the device when its connection is lost is not awaited when its controller ends.
    CommandOutlives = "command-outlives",
    /// A newer write passes a write that is resent after a lost connection.
    ReplayNotLocked = "replay-not-locked",
    /// Blocks of a lost write that was reported may be rewritten before that write has ended.
    ReportedNotFenced = "reported-not-fenced",
    /// A newer write passes a write that timed out or was cancelled without an answer.
    HoldForgotten = "hold-forgotten",
    /// The host reports a write lost with a connection as successful.
    LostWriteDone = "lost-write-done",
    /// The host never completes a read lost with a connection.
    LostReadForgotten = "lost-read-forgotten",
    /// The host does not notice that a target lost its write cache.
    CacheLossUnnoticed = "cache-loss-unnoticed",
    /// The host reports a Flush as successful although a write cache lost the writes before it.
    CacheLossHidden = "cache-loss-hidden",
    /// A Flush covers writes acknowledged until its end instead of until its start.
    FlushCountsLater = "flush-counts-later",
    /// A request counts blocks of its first commands as written after a write cache lost them.
    LostPartsKept = "lost-parts-kept",
    /// The host gives up a target permanently although it is configured to keep reconnecting.
    LossFinal = "loss-final",
    /// A channel that got no queue does not request one again.
    QueueNotAskedFor = "queue-not-asked-for",
    /// A lane whose queue the controller still holds is not opened again.
    LaneNotReopened = "lane-not-reopened",
    /// The host accepts another volume under the same NSID as the known volume.
    OtherVolumeAccepted = "other-volume-accepted",
    /// The host assigns the same identifier to two outstanding commands.
    CommandIdReused = "command-id-reused",
    /// The host completes a request when its first command has completed.
    SplitDoneEarly = "split-done-early",
    /// The host completes a request twice if it failed, or used several commands.
    CompletedTwice = "completed-twice",
    /// The host sends the first bytes of a write's data for every R2T.
    TransferFromStart = "transfer-from-start",
    /// The host ignores MAXH2CDATA.
    MaxH2cDataIgnored = "max-h2c-data-ignored",
    /// The host accepts data with a wrong digest.
    HostDigestIgnored = "host-digest-ignored",
    /// The host sends no keep-alive.
    KeepAliveNotSent = "keep-alive-not-sent",
    /// The host uses every entry of a queue, although one must stay empty.
    QueueOverfilled = "queue-overfilled",
    /// The target accepts data with a wrong digest.
    TargetDigestIgnored = "target-digest-ignored",
    /// The target treats the data of every H2CData PDU as the first bytes of its command.
    DataOffsetIgnored = "data-offset-ignored",
    /// The target requests more data than the command has.
    R2tBeyondCommand = "r2t-beyond-command",
    /// Every R2T of a command has the same transfer tag.
    TransferTagReused = "transfer-tag-reused",
    /// The target's SQ head does not advance.
    SqHeadStands = "sq-head-stands",
    /// The target answers a Flush without flushing the device.
    FlushNotDone = "flush-not-done",
    /// The target ignores FUA.
    FuaIgnored = "fua-ignored",
    /// The target sends the answer to a Flush twice.
    AnsweredTwice = "answered-twice",
    /// The target does not answer some Compares.
    AnswerDropped = "answer-dropped",
    /// The target returns only a part of a large read.
    ReadCutShort = "read-cut-short",
    /// The target reports success although its device failed.
    DeviceErrorHidden = "device-error-hidden",
    /// Write Zeroes leaves out its last block.
    ZeroesMissLast = "zeroes-miss-last",
    /// Deallocate includes the block before its range.
    DeallocateNeighbour = "deallocate-neighbour",
    /// Compare ignores the last block.
    CompareMissesLast = "compare-misses-last",
    /// The tweak of an encrypted block is its place in the request instead of on the device.
    CryptTweakRelative = "crypt-tweak-relative",
    /// An encrypted device opens with any key.
    CryptKeyUnchecked = "crypt-key-unchecked",
    /// An encrypted device stores its blocks in clear.
    CryptPlaintextWritten = "crypt-plaintext-written",
    /// The records of a TLS key all have the same nonce.
    TlsNonceReused = "tls-nonce-reused",
    /// Both directions of a TLS connection have the same key.
    TlsOneKey = "tls-one-key",
    /// TLS records have their data in clear.
    TlsDataInClear = "tls-data-in-clear",
    /// The tags of TLS records are not verified.
    TlsTagIgnored = "tls-tag-ignored",
    /// Of several TLS records, the data of the last one replaces that of the others.
    TlsDataReplaced = "tls-data-replaced",
    /// A target that requires TLS accepts connections without it.
    TlsNotRequired = "tls-not-required",
    /// A subsystem that requires TLS accepts hosts without it.
    TlsProofNotAsked = "tls-proof-not-asked",
    /// A host with a TLS key may connect with the name of another host.
    TlsNameNotBound = "tls-name-not-bound",
    /// A controller of a host with TLS accepts I/O queues without it.
    TlsQueueNotBound = "tls-queue-not-bound",
    /// A target still accepts removed TLS keys.
    TlsKeyKept = "tls-key-kept",
    /// A host tries only the first of its TLS keys.
    TlsKeyNotTried = "tls-key-not-tried",
    /// The target accepts every response of DH-HMAC-CHAP.
    ChapResponseNotCompared = "chap-response-not-compared",
    /// The host accepts every controller that answers its challenge.
    ChapControllerNotChecked = "chap-controller-not-checked",
    /// The target executes commands of a queue that has not authenticated.
    ChapNotAwaited = "chap-not-awaited",
    /// I/O queues of an authenticated controller do not authenticate.
    ChapQueueNotAuthenticated = "chap-queue-not-authenticated",
    /// All challenges of a target have the same bytes.
    ChapChallengeReused = "chap-challenge-reused",
    /// A removed secret still proves the hosts that have authenticated with it.
    ChapProofKept = "chap-proof-kept",
    /// Abort reports a command as aborted while its device has it, and frees its slot.
    AbortFreesSlot = "abort-frees-slot",
    /// Abort reports a Dataset Management as aborted while the device has pieces of it.
    AbortAnsweredEarly = "abort-answered-early",
    /// A reset or shutdown completes while devices have writes of the I/O queues.
    ResetEndsEarly = "reset-ends-early",
    /// The rollback of a namespace addition drops its commands in flight.
    UndoForgetsCommands = "undo-forgets-commands",
    /// The target does not end controllers after their keep-alive timeout.
    KeepAliveNotKept = "keep-alive-not-kept",
    /// A Keep Alive command does not restart the keep-alive timer.
    KeepAliveNotRestarted = "keep-alive-not-restarted",
    /// Hosts get no notice of changed namespaces.
    ChangeNotTold = "change-not-told",
    /// Hosts get no notice of a namespace that has shrunk.
    ShrinkNotTold = "shrink-not-told",
    /// A paused namespace accepts commands.
    PauseIgnored = "pause-ignored",
    /// Command capsules that arrive during a take-over are dropped.
    TakeOverDropsHeld = "take-over-drops-held",
    /// A take-over drops the part of a PDU that has arrived.
    TakeOverDropsPart = "take-over-drops-part",
    /// A take-over forgets outstanding Asynchronous Event Requests.
    TakeOverForgetsEvents = "take-over-forgets-events",
    /// A take-over forgets that controllers are enabled.
    TakeOverForgetsReady = "take-over-forgets-ready",
    /// A take-over forgets the digest settings of connections.
    TakeOverForgetsDigests = "take-over-forgets-digests",
    /// A take-over forgets the keep-alive timeout of controllers.
    TakeOverForgetsKeepAlive = "take-over-forgets-keep-alive",
    /// A take-over forgets that I/O queues of a controller authenticate.
    TakeOverForgetsProof = "take-over-forgets-proof",
    /// A take-over counts the TLS records of a connection from 0 again.
    TakeOverForgetsRecords = "take-over-forgets-records",
    /// A take-over forgets that permissions limit an I/O queue.
    TakeOverForgetsRights = "take-over-forgets-rights",
    /// A core acknowledges a take-over while it serves connections.
    TakeOverTooEarly = "take-over-too-early",
    /// A cancelled take-over leaves the released connections unserved.
    TakeOverNotUndone = "take-over-not-undone",
    /// A cache reports pages as written back while they are being written.
    TakeOverDirty = "take-over-dirty",
    /// Permissions are checked only for the first extent of a command.
    ExtentsNotAsked = "extents-not-asked",
    /// The host sends only the first extent if the controller does not support the command.
    ExtentsLeftOut = "extents-left-out",
    /// The target reports failed extents as completed.
    ExtentFailureHidden = "extent-failure-hidden",
    /// The target does not free the buffer of a failed write.
    BufferKept = "buffer-kept",
    /// The target refuses commands that must wait for a buffer.
    StallRefused = "stall-refused",
    /// A queue that moves to another core of the target loses its digest settings.
    MoveForgetsDigests = "move-forgets-digests",
    /// A tenant's requests are released without being charged.
    TokensNotTaken = "tokens-not-taken",
    /// Tokens generated by a thread are distributed twice.
    TokensGivenTwice = "tokens-given-twice",
    /// A tenant may access one block beyond its range.
    RangeOffByOne = "range-off-by-one",
    /// A change of the access rules does not update the permissions of connected hosts.
    RightsNotAsked = "rights-not-asked",
    /// Controllers of a host are not ended when it is denied the subsystem.
    DeniedHostStays = "denied-host-stays",
    /// A cache evicts dirty pages.
    DirtyPageEvicted = "dirty-page-evicted",
    /// A Flush of a cache does not wait for its write-back.
    WriteBackNotAwaited = "write-back-not-awaited",
    /// A cache fills and writes back pages of a range that a request changes on the device.
    ClaimIgnored = "claim-ignored",
    /// Only the first request of a merged command is completed.
    MergedEndsFirst = "merged-ends-first",
    /// An I/O path reports failed requests as successful.
    PathErrorHidden = "path-error-hidden",
    /// An I/O path drops other threads' requests of a runner that lost its channel.
    BatchNotPutBack = "batch-not-put-back",
    /// An I/O path reports a lost write cache to one thread only.
    LossToldOnce = "loss-told-once",
    /// A runner of an I/O path that dies never completes its requests of other threads.
    DeadRunnerSilent = "dead-runner-silent",
    /// A channel drops the requests sent on a queue that it is not granted again.
    UngrantedForgotten = "ungranted-forgotten",
    /// A plugged queue of an I/O path is never due.
    PlugNeverDue = "plug-never-due",
    /// The driver does not watch a socket that is no longer hot.
    ColdSocketForgotten = "cold-socket-forgotten",
    /// The driver sleeps although sockets wait for a receive buffer that is free.
    LineForgotten = "line-forgotten",
    /// The driver sleeps although a partial send or a close has to continue.
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
