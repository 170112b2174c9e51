//! The ingress queues: one per core and class. Any thread puts requests in; one dataplane thread
//! takes them out.
//!
//! A put takes no lock and never waits: a bounded queue of a few words per request. A sleeping
//! thread is woken once after a batch of requests ([`Sleeper::ring`]), not for each request.

use super::given_up::{GivenUpSlots, LookFlag};
use super::request_count::Account;
use crate::association::Association;
use crate::recovery::span::Span;
use base::units::Lba;
use base::{BoundedQueue, Time};
use block::{BlockError, Operation};
use reactor::{Region, Sleeper, Wake};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switch::{Class, PerClass};

/// A request on its way from an ingress to an egress.
#[derive(Clone, Copy, Debug)]
pub(super) struct IngressRequest {
    /// Number of the submitter.
    pub(super) submitter: u32,
    /// Slot of the request at its submitter.
    pub(super) slot: u32,
    /// Number of the controller on this switchboard.
    pub(super) target: u16,
    /// Number of the namespace at the controller.
    pub(super) namespace: u16,
    pub(super) class: Class,
    /// True if steering has chosen this core; it does not run again.
    pub(super) steered: bool,
    pub(super) operation: Operation,
    pub(super) lba: Lba,
    pub(super) blocks: u32,
    /// Offset of its data in the submitter's region, and its length, in bytes; `None` for requests
    /// without data.
    pub(super) data: Option<(u32, u32)>,
    /// Time at which it is given up.
    pub(super) limit: Time,
}

/// End of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct IngressCompletion {
    pub(super) slot: u32,
    pub(super) result: Result<(), BlockError>,
    /// Of a Flush: losses of the target's cache before it was answered.
    pub(super) losses: u32,
}

/// The ingress queues that one dataplane thread serves.
#[derive(Debug)]
pub(super) struct Ingress {
    queues: PerClass<BoundedQueue<IngressRequest>>,
    /// The dataplane thread. It is woken after a run of [`put`](Self::put).
    pub(super) sleeper: Sleeper,
    /// Set if a submitter gave up requests that this thread may have.
    given_up: LookFlag,
}

impl Ingress {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            queues: PerClass::from_fn(|_| BoundedQueue::new(capacity)),
            sleeper: Sleeper::default(),
            given_up: LookFlag::new(),
        }
    }

    /// Makes the thread search for requests that their submitters [gave up](Submitter::give_up).
    pub(super) fn look_for_given_up(&self) {
        self.given_up.raise();
        self.sleeper.ring();
    }

    /// Returns true, once, if the thread is to search for such requests.
    #[inline]
    pub(super) fn has_given_up(&self) -> bool {
        self.given_up.take()
    }

    /// Takes a request. Returns it if the queue is full.
    #[inline]
    pub(super) fn put(&self, entry: IngressRequest) -> Result<(), IngressRequest> {
        self.queues[entry.class].push(entry)
    }

    /// Takes the oldest request of a class.
    #[inline]
    pub(super) fn take(&self, class: Class) -> Option<IngressRequest> {
        self.queues[class].take()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(|(_, queue)| queue.is_empty())
    }

    /// Returns true if the thread may sleep.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeper
            .may_sleep(|| self.is_empty() && !self.given_up.is_raised())
    }
}

/// Queue of a submitter's completions from all cores.
#[derive(Debug)]
pub(super) struct Submitter {
    /// Never full: it holds the submitter's largest number of outstanding requests.
    done: BoundedQueue<IngressCompletion>,
    account: Account,
    /// The submitter's thread. It is woken after a run of [`finish`](Self::finish).
    pub(super) sleeper: Sleeper,
    /// Memory for the data of its requests.
    pub(super) region: Region,
    /// Slots whose request it gave up.
    given_up: GivenUpSlots,
    /// Writes that it left outstanding.
    abandoned: Mutex<Option<AbandonedWrites>>,
    /// Keeps the number of its controller in use while one of its requests is in flight.
    _target: Option<Arc<TargetNumber>>,
}

impl Submitter {
    pub(super) fn new(depth: usize, region: Region, waker: Arc<dyn Wake>) -> Self {
        Self {
            done: BoundedQueue::new(depth),
            account: Account::new(),
            sleeper: Sleeper::new(waker),
            region,
            given_up: GivenUpSlots::new(depth),
            abandoned: Mutex::new(None),
            _target: None,
        }
    }

    /// The same submitter, for requests to this controller.
    pub(super) fn with_target(mut self, target: &Arc<TargetNumber>) -> Self {
        self._target = Some(Arc::clone(target));
        self
    }

    /// Gives up the request in the slot.
    pub(super) fn give_up(&self, slot: u32) {
        self.given_up.mark(slot);
    }

    /// Records that the request in the slot has ended, given up or not. Called by the submitter.
    #[inline]
    pub(super) fn is_over(&self, slot: u32) {
        self.given_up.clear(slot);
    }

    /// Returns true if the request in the slot was given up.
    #[inline]
    pub(super) fn has_given_up(&self, slot: u32) -> bool {
        self.given_up.contains(slot)
    }

    /// Returns the slots whose request was given up.
    pub(super) fn slots_given_up(&self) -> impl Iterator<Item = u32> {
        self.given_up.iter()
    }

    /// Counts a request that was put into an ingress.
    #[inline]
    pub(super) fn asked(&self) {
        self.account.asked();
    }

    /// Queues the completion of a request.
    #[inline]
    pub(super) fn finish(&self, done: IngressCompletion) {
        let put = self.done.push(done);
        debug_assert!(put.is_ok(), "at most a depth of requests");
        self.account.answered();
    }

    /// Returns the requests put into an ingress that have not ended. Approximate while the
    /// submitter is submitting.
    #[inline]
    pub(super) fn under_way(&self) -> u64 {
        self.account.under_way()
    }

    /// Records the writes that it leaves outstanding.
    pub(super) fn abandon(&self, writes: AbandonedWrites) {
        *self.abandoned() = Some(writes);
    }

    /// Returns true if none of its requests is in any queue or lane. Called after the message that
    /// it left, because it submits nothing after that.
    pub(super) fn is_quiet(&self) -> bool {
        self.account.is_quiet()
    }

    /// Ends the hold on newer writes of the blocks: the writes that it left have ended.
    pub(super) fn let_go(&self) {
        let writes = self.abandoned().take();
        drop(writes);
    }

    fn abandoned(&self) -> MutexGuard<'_, Option<AbandonedWrites>> {
        // Related changes happen without a panic in between, so poisoning does no harm.
        self.abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn take(&self) -> Option<IngressCompletion> {
        self.done.take()
    }

    pub(super) fn may_sleep(&self) -> bool {
        self.sleeper.may_sleep(|| self.done.is_empty())
    }
}

/// Generation of these holds: they outlast every association, because a lane may resend a write
/// before it receives the cancellation.
const EVERY: u64 = u64::MAX;

/// Holds newer writes of these blocks back until it is dropped. Before that, a lane that gives up
/// one of the writes holds or fences its blocks itself.
#[derive(Debug)]
pub(super) struct AbandonedWrites {
    association: Arc<Association>,
    spans: Vec<Span>,
}

impl AbandonedWrites {
    pub(super) fn hold(association: &Arc<Association>, spans: Vec<Span>) -> Self {
        let hold = |&span: &Span| association.hold_blocks(EVERY, span);
        spans.iter().for_each(hold);
        Self {
            association: Arc::clone(association),
            spans,
        }
    }
}

impl Drop for AbandonedWrites {
    fn drop(&mut self) {
        let let_go = |span: &Span| self.association.let_go_blocks(EVERY, *span);
        self.spans.iter().for_each(let_go);
    }
}

/// The number of a controller. It is free once only the registry holds it: no core has lanes to the
/// controller, none of its namespaces is in use, and no request for it is outstanding.
#[derive(Debug)]
pub(super) struct TargetNumber(pub(super) u16);
