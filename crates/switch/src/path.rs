//! I/O paths to a fast device: the queue's runner, when it leaves, and what is merged. `[Yu §4]`
//! *Plug*: reads and awaited writes leave at once, other requests are plugged.
//!
//! | path | queue | run by | leaves | merges |
//! |---|---|---|---|---|
//! | `interrupt`, `poll` | dispatched | dispatcher | plug | adjacent blocks |
//! | `sync` | none | each submitter | at once | nothing |
//! | `stm` | temporal | elected submitter | at once | any requests |
//! | `atm` | plugged | submitter that unplugs; dispatcher when due | plug | one read; any writes |
//! | `htm`, `vfs_htm` | `stm` for reads and awaited writes, else `atm` | | | |
//! | `2q` | shadow | as `atm`; dispatcher after a submitter | plug | any requests |

use crate::limits;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use std::fmt;
use std::str::FromStr;

mod spec;
#[cfg(test)]
mod tests;

pub use spec::{PathError, PathSpec};

base::named! {
    /// The I/O path of requests to a device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Path {
        /// A dispatcher sends, sleeps until the device completes, and wakes the submitter: the
        /// baseline. `[Yu §2.2]`
        Interrupt = "interrupt",
        /// As `Interrupt`, with a dispatcher that polls the device. `[Yu §6.1]`
        Poll = "poll",
        /// The submitter itself sends and polls. `[Yu §4.2]`
        Sync = "sync",
        /// Synchronous temporal merge. `[Yu §4.4]`
        Stm = "stm",
        /// Asynchronous temporal merge. `[Yu §4.5]`
        Atm = "atm",
        /// Hybrid temporal merge: chosen per request by its properties. `[Yu §4.6]`
        Htm = "htm",
        /// The same rules as `Htm` under another name: the thesis's path has a cache above it
        /// without context look-up, and a cache with it is rejected above this path. `[Yu §4.7]`
        VfsHtm = "vfs_htm",
        /// Double buffering: a request queue and a shadow queue. `[Yu §4.8]`
        TwoQueue = "2q",
    }
}

impl Path {
    /// The queues of a device on this path.
    #[must_use]
    pub const fn queues(self) -> &'static [QueueKind] {
        match self {
            Self::Interrupt | Self::Poll => &[QueueKind::Dispatched],
            Self::Sync => &[],
            Self::Stm => &[QueueKind::Temporal],
            Self::Atm => &[QueueKind::Plugged],
            Self::Htm | Self::VfsHtm => &[QueueKind::Temporal, QueueKind::Plugged],
            Self::TwoQueue => &[QueueKind::Shadow],
        }
    }

    /// The route of a request.
    #[must_use]
    pub const fn route(self, request: Properties) -> Route {
        match self {
            Self::Sync => Route::Own,
            Self::Htm | Self::VfsHtm => Route::Queue(!(request.reads || request.awaited) as usize),
            Self::Interrupt | Self::Poll | Self::Stm | Self::Atm | Self::TwoQueue => {
                Route::Queue(0)
            }
        }
    }

    /// Returns true if the runner of a queue polls the device for its commands; otherwise it sleeps
    /// until the device completes.
    #[must_use]
    pub const fn polls(self) -> bool {
        !matches!(self, Self::Interrupt)
    }

    /// Returns true if a cache above this path may use context look-up to detect interleaved
    /// sequential streams. The thesis's systems `vfs_htm` and `2q` have read-ahead without it. `[Yu
    /// §4.7, §4.8]`
    #[must_use]
    pub const fn context_look_up(self) -> bool {
        !matches!(self, Self::VfsHtm | Self::TwoQueue)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(name: &str) -> Result<Self, PathError> {
        let path = Self::ALL.into_iter().find(|path| path.name() == name);
        path.ok_or_else(|| PathError::Name(name.to_owned()))
    }
}

/// The properties of a request that determine its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// It reads from the device.
    pub reads: bool,
    /// Awaited: a thread or a commit waits for it. A cache's write-back is not awaited.
    pub awaited: bool,
}

impl Properties {
    /// Returns true if it may belong to a commit: it is not a read, and is awaited.
    const fn is_commit(self) -> bool {
        !self.reads && self.awaited
    }

    /// Returns true if it is a write that is not awaited.
    const fn is_write_back(self) -> bool {
        !self.reads && !self.awaited
    }
}

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The submitter itself sends it, alone.
    Own,
    /// Into the device's queue with this index in [`Path::queues`].
    Queue(usize),
}

base::with_defaults! {
    /// The parameters of paths.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PathRules {
        /// Requests that unplug a queue: 1 to [`limits::UNPLUG_THRESHOLD_MAX`]. `interrupt` and
        /// `poll` always use [those of disks](Self::of_disks), also for the delay. `[Yu §4.5]`
        pub unplug_threshold: u32 = 32,
        /// Maximum plug time of a request: up to [`limits::UNPLUG_DELAY_MAX`].
        pub unplug_delay: Nanos = Nanos::from_millis(1),
        /// Maximum requests of one batch: 1 to [`limits::TABLE_ENTRIES_MAX`]. `[Yu §5.2]`
        pub table_entries: u32 = limits::TABLE_ENTRIES_MAX,
        /// Time after which a queue with waiting requests is taken over from a runner that does not
        /// run: [`limits::HANDOVER_MIN`] to [`limits::HANDOVER_MAX`].
        pub handover: Nanos = Nanos::from_millis(1),
    }
}

/// A parameter out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be from {min} to {max}")]
pub struct PathRulesError {
    /// The name of the parameter.
    pub name: &'static str,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
}

impl PathRules {
    /// The baseline's parameters: those of a stack designed for disks. `[Yu §4.5, Table 2]`
    #[must_use]
    pub fn of_disks(self) -> Self {
        Self {
            unplug_threshold: limits::DISK_UNPLUG_THRESHOLD,
            unplug_delay: limits::DISK_UNPLUG_DELAY,
            ..self
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The first parameter out of range; times in microseconds.
    pub fn validate(&self) -> Result<(), PathRulesError> {
        let checks = [
            (
                "unplug_threshold",
                u64::from(self.unplug_threshold),
                1,
                u64::from(limits::UNPLUG_THRESHOLD_MAX),
            ),
            (
                "unplug_delay_us",
                self.unplug_delay.0.div_ceil(1_000),
                0,
                limits::UNPLUG_DELAY_MAX.0 / 1_000,
            ),
            (
                "table_entries",
                u64::from(self.table_entries),
                1,
                u64::from(limits::TABLE_ENTRIES_MAX),
            ),
            (
                "handover_us",
                self.handover.0 / 1_000,
                limits::HANDOVER_MIN.0 / 1_000,
                limits::HANDOVER_MAX.0 / 1_000,
            ),
        ];
        for (name, value, min, max) in checks {
            if !(min..=max).contains(&value) {
                return Err(PathRulesError { name, min, max });
            }
        }
        Ok(())
    }
}

/// The kind of a queue: how its path treats the requests in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Used by `interrupt` and `poll`.
    Dispatched,
    /// Used by `stm`.
    Temporal,
    /// Used by `atm`.
    Plugged,
    /// Used by `2q`.
    Shadow,
}

/// Which requests may be merged into one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// None: one request per command.
    One,
    /// Requests on adjacent block ranges.
    Neighbours,
    /// All requests that do not overlap.
    Any,
}

impl QueueKind {
    /// Returns true if a request is not plugged.
    const fn at_once(self, request: Properties) -> bool {
        match self {
            Self::Temporal => true,
            Self::Plugged | Self::Dispatched | Self::Shadow => request.reads || request.awaited,
        }
    }

    /// Returns true if a batch is sent only while no other batch is in flight.
    #[must_use]
    pub const fn one_batch(self) -> bool {
        !matches!(self, Self::Dispatched)
    }

    /// Returns which requests of one batch may be merged into one command.
    #[must_use]
    pub const fn merge(self, reads: bool) -> Merge {
        match self {
            Self::Dispatched => Merge::Neighbours,
            Self::Plugged if reads => Merge::One,
            Self::Temporal | Self::Plugged | Self::Shadow => Merge::Any,
        }
    }
}

impl Merge {
    /// Returns true if a request that begins at `first` may join a command that ends before block
    /// `end`; call it with requests in ascending order.
    #[must_use]
    pub const fn joins(self, end: u64, first: u64) -> bool {
        match self {
            Self::One => false,
            Self::Neighbours => first == end,
            Self::Any => first >= end,
        }
    }
}

/// Takes the requests of one batch from a queue, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Taking {
    one_read: bool,
    only_commits: bool,
    reads: u32,
    left: u32,
}

impl Taking {
    /// Returns true if the next request of the queue belongs to the batch; otherwise it stays
    /// queued.
    pub const fn takes(&mut self, request: Properties) -> bool {
        // A read of `atm` is sent by the submitter that queued it, under the queue's lock; the next
        // read is queued only afterwards.
        let is_second_read = self.one_read && request.reads && self.reads > 0;
        let is_left = self.only_commits && !request.is_commit();
        if self.left == 0 || is_second_read || is_left {
            return false;
        }
        self.left -= 1;
        self.reads += request.reads as u32;
        true
    }

    /// Returns true if the batch is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.left == 0
    }
}

/// The kind of thread that runs a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A submitting thread.
    Submitter,
    /// The device's dispatcher.
    Dispatcher,
}

/// The next step for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueStep {
    /// Nothing: the queue is empty, or its runner will check it again.
    Nothing,
    /// This runner runs it now.
    Run(Runner),
    /// The dispatcher runs it at this time, unless an earlier event does.
    At(Time),
}

/// Decides when a queue leaves, and which thread runs it: the election of `stm`, the plug of `atm`
/// and `2q`.
///
/// One per queue, under the queue's lock. Invariant: a due request never waits without a runner,
/// and there is at most one runner.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    kind: QueueKind,
    rules: PathRules,
    running: bool,
    waiting: u32,
    /// Waiting requests that are not plugged.
    at_once: u32,
    /// Waiting requests that may belong to a commit.
    commits: u32,
    /// Waiting writes that are not awaited.
    write_backs: u32,
    /// The last batch contained only commits.
    commits_went: bool,
    /// The time at which the oldest plugged request is due.
    due: Time,
}

impl Gate {
    /// Creates the gate of an empty queue.
    #[must_use]
    pub const fn new(kind: QueueKind, rules: PathRules) -> Self {
        Self {
            kind,
            rules,
            running: false,
            waiting: 0,
            at_once: 0,
            commits: 0,
            write_backs: 0,
            commits_went: false,
            due: Time::NEVER,
        }
    }

    /// Returns true while the queue has a runner.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.running
    }

    /// Number of requests in the queue.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Records a queued request. Returns the submitter's next step.
    pub fn arrive(&mut self, now: Time, request: Properties) -> QueueStep {
        if self.waiting == 0 {
            self.due = if mutation::active(Mutation::PlugNeverDue) {
                Time::NEVER
            } else {
                now + self.rules.unplug_delay
            };
        }
        self.waiting += 1;
        self.at_once += u32::from(self.kind.at_once(request));
        self.commits += u32::from(request.is_commit());
        self.write_backs += u32::from(request.is_write_back());
        match self.next(now) {
            // The dispatcher has known the due time since the first plugged request.
            QueueStep::At(_) if self.waiting > 1 => QueueStep::Nothing,
            next => next,
        }
    }

    /// Returns the next step.
    #[must_use]
    pub fn next(&self, now: Time) -> QueueStep {
        if self.running || self.waiting == 0 {
            return QueueStep::Nothing;
        }
        let full = self.waiting >= self.rules.unplug_threshold;
        let due = now >= self.due;
        if self.at_once == 0 && !full && !due {
            return QueueStep::At(self.due);
        }
        QueueStep::Run(match self.kind {
            QueueKind::Dispatched => Runner::Dispatcher,
            // At the due time there may be no submitter.
            QueueKind::Plugged | QueueKind::Shadow if self.at_once == 0 && !full => {
                Runner::Dispatcher
            }
            QueueKind::Temporal | QueueKind::Plugged | QueueKind::Shadow => Runner::Submitter,
        })
    }

    /// Unplugs the queue because a thread waits, or may wait, for a plugged request. Returns the
    /// next step of this thread, which is a submitter.
    pub fn unplug(&mut self, now: Time) -> QueueStep {
        if self.waiting > 0 {
            self.due = self.due.min(now);
        }
        match self.next(now) {
            QueueStep::Run(Runner::Dispatcher) if self.kind != QueueKind::Dispatched => {
                QueueStep::Run(Runner::Submitter)
            }
            next => next,
        }
    }

    /// Records that a runner begins.
    ///
    /// # Panics If the queue already has a runner.
    pub fn begin(&mut self) {
        assert!(!self.running, "a queue is run by one thread at a time");
        self.running = true;
    }

    /// Records that a request was taken from the queue.
    ///
    /// # Panics If the queue was empty.
    pub fn take(&mut self, request: Properties) {
        assert!(self.waiting > 0, "what is taken was there");
        self.waiting -= 1;
        self.at_once -= u32::from(self.kind.at_once(request));
        self.commits -= u32::from(request.is_commit());
        self.write_backs -= u32::from(request.is_write_back());
    }

    /// Begins a batch. In a `2q` queue with both commit requests and write-back, the commit
    /// requests leave in a batch of their own, which the thesis does not specify. The next batch
    /// then takes all requests, oldest first, so that none waits for more than one such batch. `[Yu
    /// §4.8]`
    pub fn taking(&mut self) -> Taking {
        let contend = self.commits > 0 && self.write_backs > 0;
        self.commits_went = self.kind == QueueKind::Shadow && contend && !self.commits_went;
        let most = self.rules.table_entries;
        Taking {
            one_read: self.kind == QueueKind::Plugged,
            only_commits: self.commits_went,
            reads: 0,
            left: if self.commits_went {
                most.min(self.commits)
            } else {
                most
            },
        }
    }

    /// Called when the runner has nothing in flight. Returns true if it continues; otherwise it no
    /// longer runs the queue, and [`next`](Self::next) returns the next step.
    ///
    /// # Panics If the queue has no runner.
    pub fn goes_on(&mut self, now: Time, runner: Runner) -> bool {
        assert!(self.running, "only who runs a queue goes on");
        self.running = false;
        let goes_on = match (self.next(now), self.kind, runner) {
            (QueueStep::Run(_), QueueKind::Shadow, Runner::Submitter) => false,
            (QueueStep::Run(_), ..) => true,
            _ => false,
        };
        self.running = goes_on;
        goes_on
    }

    /// Ends the runner, whatever waits.
    ///
    /// # Panics If the queue has no runner.
    pub fn stop(&mut self) {
        assert!(self.running, "only a queue that is run can be left");
        self.running = false;
    }

    /// Returns the next step after a runner that did not [continue](Self::goes_on): a submitter
    /// that stops hands a `2q` queue over to the dispatcher.
    #[must_use]
    pub fn after(&self, now: Time) -> QueueStep {
        match self.next(now) {
            QueueStep::Run(_) if self.kind == QueueKind::Shadow => {
                QueueStep::Run(Runner::Dispatcher)
            }
            next => next,
        }
    }
}
