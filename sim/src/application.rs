//! An application of the simulated world: its workload, what it is ready for, and its results.

use crate::oracle::Oracle;
use crate::rights::{Extent, Law};
use base::Nanos;
use block::BlockError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use switch::Path;

/// Extents of one command, at most: more find nothing that these do not.
pub(crate) const EXTENTS_AT_ONCE: usize = 8;

/// A volume that comes in the place of another one.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    /// The target, by its place among those of a host.
    pub(crate) target: usize,
    pub(crate) nsid: u32,
    pub(crate) oracle: &'a Rc<RefCell<Oracle>>,
    pub(crate) extent: &'a Extent,
}

base::with_defaults! {
    /// An application of a host.
    #[derive(Clone, Debug)]
    pub struct Application {
        /// The controller of its host by which it reaches its namespace: the first, the second, ….
        pub target: usize = 0,
        /// The namespace that it works on.
        pub nsid: u32 = 1,
        /// Its workload.
        pub workload: Workload = Workload::NONE,
        /// Seeds its requests.
        pub seed: u64 = 0,
        /// Which requests it makes.
        pub mix: Mix = Mix::default(),
        /// Which errors it is ready for.
        pub tolerance: Tolerance = Tolerance::Any,
        /// Oracle that it shares with others on the same device; `None` for a device of its own.
        pub oracle: Option<Rc<RefCell<Oracle>>> = None,
        /// The host that it runs on: its replacement is another one.
        pub host: u64 = 1,
        /// The host's permissions in the namespace, and the namespace's size; `None` where these never
        /// change.
        pub law: Option<Law> = None,
        /// True if it reads and writes several extents by one command where its device takes them.
        pub extents: bool = false,
        /// Gives some requests up, where its channel can.
        pub gives_up: bool = false,
        /// Half of its requests are Flushes, and few are under way at once: mostly nothing that was
        /// acknowledged is not flushed.
        pub syncs: bool = false,
        /// It writes more than one command takes, flushes that, and has nothing else under way meanwhile.
        pub splits: bool = false,
        /// It closes its channel now and then, and opens another one.
        pub reopens: bool = false,
        /// Its host is the only one of its volume, now and later: newer writes wait for those of which
        /// the effect is not known. Other hosts do not wait.
        pub alone: bool = true,
        /// Its host fails requests that have waited so long for a connection, and goes on trying to
        /// connect. `None` where requests wait for ever.
        pub waits: Option<Nanos> = None,
        /// The application asks for others in the place of requests that fail for want of a connection,
        /// or of an I/O queue.
        pub asks_anew: bool = false,
        /// Threads of its host die that may have some of its requests.
        pub deaths: bool = false,
        /// True if answers are judged. Those of a target that lies are not.
        pub judged: bool = true,
        /// After so many requests it asks for nothing for so long.
        pub rest: Option<(u64, Nanos)> = None,
        /// The results.
        pub report: Rc<RefCell<ApplicationReport>> = Rc::default(),
        /// Requests that it and others of its run were answered.
        pub answered: Rc<Cell<u64>> = Rc::default(),
    }
}

impl Application {
    /// Another volume came, perhaps in the place of its namespace, which it has not opened yet.
    pub(crate) fn is_replaced(&mut self, by: &Replacement<'_>) {
        if (self.target, self.nsid) != (by.target, by.nsid) {
            return;
        }
        self.oracle = Some(Rc::clone(by.oracle));
        if let Some(law) = &mut self.law {
            law.extent = by.extent.clone();
        }
    }

    /// One on a device of its own, as namespace 1.
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
    /// Requests in all.
    pub requests: u64,
    /// Requests under way at once.
    pub depth: usize,
    /// Blocks of most requests, at most.
    pub blocks_max: u64,
    /// Blocks of one request in sixteen, at most: large enough for several transfers.
    pub blocks_large: u64,
}

impl Workload {
    /// Nothing to do.
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
    /// Of these, with an error.
    pub failed: u64,
    /// Of these, because they took too long.
    pub timed_out: u64,
    /// Requests that failed for want of a connection, and in the place of which others were asked
    /// for. They do not count as answered.
    pub unconnected: u64,
    /// Requests with data that were answered, in bytes.
    pub bytes: u64,
    /// The longest that a request took, after [`WARM_UP`](crate::WARM_UP) others.
    pub slowest: Nanos,
    /// A fingerprint of all answers in order: equal runs have equal ones.
    pub fingerprint: u64,
    /// An application without a judge was told that its namespace is gone, and asks no more.
    pub gave_up: bool,
    /// The I/O path by which it reached its namespace.
    pub path: Option<Path>,
}

/// Which requests an application makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Reads, writes that never overlap with others, and now and then a flush.
    #[default]
    Plain,
    /// Every operation there is, on ranges that others may be writing.
    Everything,
}

/// Errors that an application must be ready for, because something provokes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Any: the owner of the application looks at its report.
    Any,
    /// These, and no other.
    Only {
        /// The device fails requests.
        device: bool,
        /// The namespace may go for good.
        gone: bool,
        /// The host may give requests up.
        late: bool,
        /// The host may fail requests after a while without a connection, or for want of an I/O queue.
        unconnected: bool,
        /// A lost connection may be taken for a loss of what was not flushed.
        forgets: bool,
        /// True if permissions change, and sizes of volumes.
        changes: bool,
    },
}

impl Tolerance {
    /// Returns the same for an application with a volume that stays, or does not.
    #[must_use]
    pub(crate) fn of_volume(mut self, may_go: bool) -> Self {
        if let Self::Only { gone, .. } = &mut self {
            *gone &= may_go;
        }
        self
    }

    /// Returns the same for an application of a host on which threads that send for others die: what
    /// they had is aborted, and its blocks are closed for a while.
    #[must_use]
    pub(crate) fn with_deaths(mut self) -> Self {
        if let Self::Only { late, .. } = &mut self {
            *late = true;
        }
        self
    }

    /// Returns true if the namespace may go for good.
    pub(crate) const fn may_go(self) -> bool {
        match self {
            Self::Any => true,
            Self::Only { gone, .. } => gone,
        }
    }

    /// Returns true if an answer may be this error.
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
