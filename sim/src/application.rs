//! An application of the simulated world: workload, tolerated errors and results.

use crate::oracle::Oracle;
use crate::rights::{Extent, Law};
use base::Nanos;
use block::BlockError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use switch::Path;

/// Maximum extents per command. More extents exercise no further code.
pub(crate) const EXTENTS_AT_ONCE: usize = 8;

/// A volume that replaces another volume.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    /// Index of the target among the host's targets.
    pub(crate) target: usize,
    pub(crate) nsid: u32,
    pub(crate) oracle: &'a Rc<RefCell<Oracle>>,
    pub(crate) extent: &'a Extent,
}

base::with_defaults! {
    /// An application of a host.
    #[derive(Clone, Debug)]
    pub struct Application {
        /// Index of the host's controller through which it reaches its namespace, from 0.
        pub target: usize = 0,
        /// Its namespace.
        pub nsid: u32 = 1,
        /// Its workload.
        pub workload: Workload = Workload::NONE,
        /// Seeds its requests.
        pub seed: u64 = 0,
        /// Kinds of requests that it issues.
        pub mix: Mix = Mix::default(),
        /// Errors that it tolerates.
        pub tolerance: Tolerance = Tolerance::Any,
        /// Oracle shared with other applications on the same device; `None` for a device of its
        /// own.
        pub oracle: Option<Rc<RefCell<Oracle>>> = None,
        /// Number of its host; a replacement host has another number.
        pub host: u64 = 1,
        /// The host's permissions in the namespace, and the namespace's size; `None` if these never
        /// change.
        pub law: Option<Law> = None,
        /// True if it reads and writes several extents with one command, if the device supports it.
        pub extents: bool = false,
        /// Cancels some requests or sets a timeout on them, if its channel can.
        pub gives_up: bool = false,
        /// Half of its requests are Flushes, and few are outstanding at once, so that mostly every
        /// acknowledged write is flushed.
        pub syncs: bool = false,
        /// It writes more than one command can carry, flushes that, and has no other requests
        /// outstanding meanwhile.
        pub splits: bool = false,
        /// It closes its channel at times, and opens a new one.
        pub reopens: bool = false,
        /// Its host is the only host of its volume, now and later: newer writes wait for writes of
        /// unknown effect. Other hosts do not wait.
        pub alone: bool = true,
        /// Time without a connection after which its host fails requests; the host continues to
        /// reconnect. `None`: requests wait without limit.
        pub waits: Option<Nanos> = None,
        /// The application replaces requests that fail for lack of a connection or an I/O queue by
        /// new requests.
        pub asks_anew: bool = false,
        /// Threads of its host that may hold some of its requests die during the run.
        pub deaths: bool = false,
        /// True if answers are checked. Answers of a target that violates the protocol are not.
        pub judged: bool = true,
        /// Number of requests after which it pauses, and the length of the pause.
        pub rest: Option<(u64, Nanos)> = None,
        /// The results.
        pub report: Rc<RefCell<ApplicationReport>> = Rc::default(),
        /// Requests answered to all applications of its run.
        pub answered: Rc<Cell<u64>> = Rc::default(),
    }
}

impl Application {
    /// Notes that another volume replaced its namespace, which it has not opened yet.
    pub(crate) fn is_replaced(&mut self, by: &Replacement<'_>) {
        if (self.target, self.nsid) != (by.target, by.nsid) {
            return;
        }
        self.oracle = Some(Rc::clone(by.oracle));
        if let Some(law) = &mut self.law {
            law.extent = by.extent.clone();
        }
    }

    /// An application on a device of its own, as namespace 1.
    #[must_use]
    pub fn alone(workload: Workload, seed: u64) -> Self {
        Self {
            workload,
            seed,
            ..Self::default()
        }
    }
}

/// The workload of an application.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Total requests.
    pub requests: u64,
    /// Maximum outstanding requests.
    pub depth: usize,
    /// Maximum blocks of most requests.
    pub blocks_max: u64,
    /// Maximum blocks of one request in sixteen: large enough for several transfers.
    pub blocks_large: u64,
}

impl Workload {
    /// No requests.
    pub const NONE: Self = Self {
        requests: 0,
        depth: 1,
        blocks_max: 1,
        blocks_large: 1,
    };
}

/// The results of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationReport {
    /// Requests that were answered.
    pub answered: u64,
    /// Of these, requests that failed.
    pub failed: u64,
    /// Of these, requests that timed out.
    pub timed_out: u64,
    /// Requests that failed for lack of a connection and were replaced by new requests. Not counted
    /// as answered.
    pub unconnected: u64,
    /// Bytes of answered requests with data.
    pub bytes: u64,
    /// Longest request, after the first [`WARM_UP`](crate::WARM_UP) requests.
    pub slowest: Nanos,
    /// Hash of all answers in order: equal in equal runs.
    pub fingerprint: u64,
    /// An application without checks learned that its namespace no longer exists, and ended.
    pub gave_up: bool,
    /// I/O path by which it reached its namespace.
    pub path: Option<Path>,
}

/// Kinds of requests that an application issues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Reads, writes that never overlap with other writes, and occasional flushes.
    #[default]
    Plain,
    /// All operations, on ranges that other applications may be writing.
    Everything,
}

/// Errors that an application must tolerate because the run provokes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Any error: the owner of the application checks its report.
    Any,
    /// Only these errors.
    Only {
        /// The device fails requests.
        device: bool,
        /// The namespace may be removed.
        gone: bool,
        /// The host may time out or cancel requests.
        late: bool,
        /// The host may fail requests after some time without a connection, or for lack of an I/O
        /// queue.
        unconnected: bool,
        /// A lost connection may be reported as a loss of unflushed writes.
        forgets: bool,
        /// Permissions and volume sizes change.
        changes: bool,
    },
}

impl Tolerance {
    /// Returns the same tolerance for an application on a volume that may be removed if `may_go` is
    /// true.
    #[must_use]
    pub(crate) fn of_volume(mut self, may_go: bool) -> Self {
        if let Self::Only { gone, .. } = &mut self {
            *gone &= may_go;
        }
        self
    }

    /// Returns the same tolerance for an application on a host where threads that send for other
    /// threads die. Their requests are aborted, and the blocks of these are closed for a while.
    #[must_use]
    pub(crate) fn with_deaths(mut self) -> Self {
        if let Self::Only { late, .. } = &mut self {
            *late = true;
        }
        self
    }

    /// Returns true if the namespace may be removed.
    pub(crate) const fn may_go(self) -> bool {
        match self {
            Self::Any => true,
            Self::Only { gone, .. } => gone,
        }
    }

    /// Returns true if `error` is tolerated.
    pub(crate) fn allows(self, error: BlockError) -> bool {
        let Self::Only {
            device,
            gone,
            late,
            unconnected,
            changes,
            ..
        } = self
        else {
            return true;
        };
        match error {
            BlockError::ReadFailure | BlockError::WriteFailure => device,
            BlockError::Gone => gone || unconnected,
            BlockError::TimedOut => late || unconnected,
            BlockError::Aborted => late,
            BlockError::OutOfRange | BlockError::Denied => changes,
            _ => false,
        }
    }
}
