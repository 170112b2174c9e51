//! I/O paths to a fast device: who runs the queue, when it is sent, and which requests share a
//! command. `[Yu §4]`
//!
//! Every request has a [`Route`]: sent by the submitter itself, or into a queue of the device. The
//! runner of a queue takes requests from it ([`Taking`]), merges them into commands ([`Merge`]),
//! sends them, and waits for them. A [`Gate`] per queue decides who runs it next, and when:
//!
//! | path | queue | run by | leaves | one command |
//! |---|---|---|---|---|
//! | `interrupt`, `poll` | dispatched | the dispatcher | reads and awaited writes at once, others plugged | neighbours |
//! | `sync` | none | each submitter | at once | one request |
//! | `stm` | temporal | the elected submitter | at once | any requests |
//! | `atm` | plugged | the submitter that unplugs it, the dispatcher when it is due | reads and awaited writes at once, others plugged | one read; any writes |
//! | `htm`, `vfs_htm` | as `stm` for reads and awaited writes, else as `atm` | | | |
//! | `2q` | shadow | as `atm`, and the dispatcher after a submitter | as `atm` | any requests |
//!
//! A request is awaited if a thread or a commit waits for it; write-back of a cache is not awaited.
//! In `2q`, awaited requests other than reads are sent before write-back, in a separate batch.

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
    /// The path of requests to a device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Path {
        /// A dispatcher sends, sleeps until the device is done, and wakes the submitter: the baseline.
        /// `[Yu §2.2]`
        Interrupt = "interrupt",
        /// The same with a dispatcher that polls the device. `[Yu §6.1]`
        Poll = "poll",
        /// The submitter sends and polls itself. `[Yu §4.2]`
        Sync = "sync",
        /// Synchronous temporal merge. `[Yu §4.4]`
        Stm = "stm",
        /// Asynchronous temporal merge. `[Yu §4.5]`
        Atm = "atm",
        /// Hybrid temporal merge: each request by its properties. `[Yu §4.6]`
        Htm = "htm",
        /// The same rules by a name of their own: the thesis' path has a cache above it that looks up no
        /// context, and one that does is refused above this path. `[Yu §4.7]`
        VfsHtm = "vfs_htm",
        /// Double buffering: a request queue and a shadow queue. `[Yu §4.8]`
        TwoQueue = "2q",
    }
}

impl Path {
    /// The queues of a device with this path.
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
    /// until the device is done.
    #[must_use]
    pub const fn polls(self) -> bool {
        !matches!(self, Self::Interrupt)
    }

    /// Returns true if a cache over this path may look up the context of a read, in order to find
    /// sequential streams among others. The thesis' systems `vfs_htm` and `2q` have read-ahead
    /// without that. `[Yu §4.7, §4.8]`
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

/// The properties of a request that a path looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// It brings data from the device.
    pub reads: bool,
    /// A thread or a commit waits for it.
    pub awaited: bool,
}

impl Properties {
    /// Returns true if it may be part of a commit: it does not read, and is waited for.
    const fn is_commit(self) -> bool {
        !self.reads && self.awaited
    }

    /// Returns true if it writes, and no thread waits for it.
    const fn is_write_back(self) -> bool {
        !self.reads && !self.awaited
    }
}

/// The way that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The submitter sends it itself, alone.
    Own,
    /// Into the device's queue of this index in [`Path::queues`].
    Queue(usize),
}

base::with_defaults! {
    /// The parameters of paths.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PathRules {
        /// Requests that unplug a queue: 1 to [`limits::UNPLUG_THRESHOLD_MAX`]. `interrupt` and `poll`
        /// have [those of disks](Self::of_disks) whatever this says, and the same delay. `[Yu §4.5]`
        pub unplug_threshold: u32 = 32,
        /// Longest time for which a request is plugged: up to [`limits::UNPLUG_DELAY_MAX`].
        pub unplug_delay: Nanos = Nanos::from_millis(1),
        /// The most requests of one batch: 1 to [`limits::TABLE_ENTRIES_MAX`]. `[Yu §5.2]`
        pub table_entries: u32 = limits::TABLE_ENTRIES_MAX,
        /// Time after which a queue is taken over from a runner that does not run, if requests wait:
        /// [`limits::HANDOVER_MIN`] to [`limits::HANDOVER_MAX`].
        pub handover: Nanos = Nanos::from_millis(1),
    }
}

/// A parameter outside of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be from {min} to {max}")]
pub struct PathRulesError {
    /// The name of the parameter.
    pub name: &'static str,
    /// The smallest value.
    pub min: u64,
    /// The largest one.
    pub max: u64,
}

impl PathRules {
    /// The baseline's parameters: those of a stack that was made for disks. `[Yu §4.5, Table 2]`
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
    /// The first parameter that is outside of its range; times in microseconds.
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

/// The kind of a queue: what its path does with the requests in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Of `interrupt` and `poll`.
    Dispatched,
    /// Of `stm`.
    Temporal,
    /// Of `atm`.
    Plugged,
    /// Of `2q`.
    Shadow,
}

/// Requests that may travel as one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// One request.
    One,
    /// Requests of which each begins where another ends.
    Neighbours,
    /// Any requests that do not overlap.
    Any,
}

impl QueueKind {
    /// Returns true if a request does not wait in the plug.
    const fn at_once(self, request: Properties) -> bool {
        match self {
            Self::Temporal => true,
            Self::Plugged | Self::Dispatched | Self::Shadow => request.reads || request.awaited,
        }
    }

    /// Returns true if a batch is sent only while no other one is under way.
    #[must_use]
    pub const fn one_batch(self) -> bool {
        !matches!(self, Self::Dispatched)
    }

    /// Returns what may travel as one command of the requests of one batch.
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
    /// `end`; requests are asked for in ascending order.
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
    /// Returns true if the next request of the queue is taken; otherwise it stays where it is.
    pub const fn takes(&mut self, request: Properties) -> bool {
        // A read of `atm` is sent by the submitter that put it in, under the queue's lock: the
        // next one comes in only afterwards.
        let is_second_read = self.one_read && request.reads && self.reads > 0;
        let is_left = self.only_commits && !request.is_commit();
        if self.left == 0 || is_second_read || is_left {
            return false;
        }
        self.left -= 1;
        self.reads += request.reads as u32;
        true
    }

    /// Returns true if no further request can be taken.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.left == 0
    }
}

/// The runner of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A thread that submits.
    Submitter,
    /// The device's dispatcher.
    Dispatcher,
}

/// The next thing to do for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueStep {
    /// Nothing: the queue is empty, or its runner will look at it again.
    Nothing,
    /// This one runs it now.
    Run(Runner),
    /// The dispatcher runs it at this time, unless something comes before.
    At(Time),
}

/// Decides when a queue leaves, and which thread runs it: the election of `stm`, the plug of `atm`
/// and `2q`.
///
/// One for each queue, under the queue's lock. Must never: let a request wait although no one runs
/// the queue and it is due; have two run it at once.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    kind: QueueKind,
    rules: PathRules,
    running: bool,
    waiting: u32,
    /// Of these, how many do not wait in the plug.
    at_once: u32,
    /// Those that may be part of a commit.
    commits: u32,
    /// Those that write, and that no thread waits for.
    write_backs: u32,
    /// The last batch had commits only.
    commits_went: bool,
    /// The time at which the oldest plugged request is due.
    due: Time,
}

impl Gate {
    /// The gate of an empty queue.
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

    /// Returns true while someone runs the queue.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.running
    }

    /// Requests in the queue.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// A request is in the queue. Returns what the submitter has to do about it.
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
            // The dispatcher knows when the plug is due since its first request.
            QueueStep::At(_) if self.waiting > 1 => QueueStep::Nothing,
            next => next,
        }
    }

    /// Returns what has to be done now.
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
            // No submitter is there when the time has come.
            QueueKind::Plugged | QueueKind::Shadow if self.at_once == 0 && !full => {
                Runner::Dispatcher
            }
            QueueKind::Temporal | QueueKind::Plugged | QueueKind::Shadow => Runner::Submitter,
        })
    }

    /// A thread waits for a request in the plug, or may do so: nothing stays there for its time.
    /// Returns what this thread, which is a submitter, has to do about it.
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

    /// Someone begins to run the queue.
    ///
    /// # Panics
    /// If someone runs it already.
    pub fn begin(&mut self) {
        assert!(!self.running, "a queue is run by one thread at a time");
        self.running = true;
    }

    /// A request was taken from the queue.
    ///
    /// # Panics
    /// If there was none.
    pub fn take(&mut self, request: Properties) {
        assert!(self.waiting > 0, "what is taken was there");
        self.waiting -= 1;
        self.at_once -= u32::from(self.kind.at_once(request));
        self.commits -= u32::from(request.is_commit());
        self.write_backs -= u32::from(request.is_write_back());
    }

    /// Begins a batch. In a queue of `2q` where requests of a commit wait beside write-back, those of
    /// the commit leave alone: the thesis left that open. The batch after such a one is of all,
    /// oldest first, so that nothing waits for more than one of them. `[Yu §4.8]`
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

    /// The runner has nothing under way and looks at the queue again. Returns true if it goes on;
    /// otherwise it runs the queue no more, and [`next`](Self::next) says what becomes of it.
    ///
    /// # Panics
    /// If no one runs the queue.
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

    /// The runner ends, whatever waits.
    ///
    /// # Panics
    /// If no one runs the queue.
    pub fn stop(&mut self) {
        assert!(self.running, "only a queue that is run can be left");
        self.running = false;
    }

    /// Returns what runs the queue after a runner that did not [go on](Self::goes_on): a submitter
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
