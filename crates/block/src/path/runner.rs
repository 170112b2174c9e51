//! Running queues: takes batches, builds commands, sends them through the channel of the running
//! thread, and distributes their completions.

use super::command::{Command, Merged, Single, joins, kind_of, merged, single};
use super::inbox::Inbox;
use super::queue::{Entry, Look, SharedQueue, Term};
use super::stats::PathStats;
use crate::device::{Channel, Device, DeviceError, Dropped, Submit};
use crate::extents::{Extent, Extents};
use crate::limits::{BATCH_REQUESTS_MAX, PATH_QUEUE_DEPTH};
use crate::request::{BlockError, Completion, Operation, Request};
use base::mutation::{self, Mutation};
use base::{Nanos, Slab, SlabKey, Time};
use reactor::{Context, Driver, Guard};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::path;

/// Longest time for which a runner polls a device that completes nothing: a wake-up costs at most a
/// tenth of it.
const POLL_WINDOW: Nanos = Nanos::from_millis(1);

/// Batches of one queue in one turn, because the runner's own thread has other work.
const BATCHES_A_TURN: u32 = 8;

/// One thread's share in running the queues of a device.
#[derive(Debug)]
pub(super) struct Runner {
    device: Arc<dyn Device>,
    below: Box<dyn Channel>,
    /// Number of resizes of the device before its channel was opened.
    resizes: u32,
    who: path::Runner,
    /// The submitter to which it belongs; `None` for the dispatcher.
    own: Option<Own>,
    queues: Arc<[SharedQueue]>,
    terms: Vec<Option<Held>>,
    /// Requests and commands in flight.
    single: Slab<Single>,
    merged: Slab<Merged>,
    /// Requests of merged commands: if a command fails, each of them becomes a separate command.
    merged_requests: usize,
    /// Commands that wait for room in the channel below, or for the next turn.
    unsent: VecDeque<Command>,
    batch: Vec<Entry>,
    spare_entries: Vec<Vec<Entry>>,
    spare_extents: Vec<Vec<Extent>>,
    own_done: VecDeque<Completion>,
    /// Number of terms begun, commands sent and commands completed, to detect progress.
    steps: u64,
    /// That number at the last turn.
    steps_seen: u64,
    extents_max: usize,
    block_bytes: u64,
    bytes_max: u64,
    submitted: bool,
    /// True if the channel below had no room; a completion makes room.
    refused: bool,
    /// True if the last turn ended before everything possible was sent: no completion triggers the
    /// next one.
    unfinished: bool,
    closing: bool,
    /// True if the channel below is gone, until it [is back](Channel::is_back), but the device is
    /// not: other threads send.
    gone: bool,
    /// Time of the last turn, and of the last progress.
    now: Time,
    progress_at: Time,
    stats: Arc<PathStats>,
}

/// The submitter to which a runner belongs.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) inbox: Arc<Inbox>,
    /// True if it runs queues only while it has outstanding requests.
    pub(super) only_in_calls: bool,
    /// Number of its requests that have not completed.
    pub(super) outstanding: usize,
}

/// A queue run by this thread.
#[derive(Clone, Copy, Debug)]
struct Held {
    term: Term,
    first: bool,
    /// Number of commands of the queue in flight.
    under_way: u32,
    /// True once the term has ended; commands in flight must still complete.
    over: bool,
}

impl Runner {
    /// Opens the device for a thread that runs its queues.
    ///
    /// # Errors
    /// The error of the device.
    pub(super) fn open(
        device: Arc<dyn Device>,
        driver: &mut dyn Driver,
        own: Option<Own>,
        queues: Arc<[SharedQueue]>,
        stats: Arc<PathStats>,
    ) -> Result<Self, DeviceError> {
        let capabilities = device.capabilities();
        // Read before the channel is opened: a channel from before a resize must not count as new.
        let resizes = resizes(&queues);
        let below = device.open(driver)?;
        Ok(Self {
            terms: queues.iter().map(|_| None).collect(),
            block_bytes: device.geometry().block_bytes.into(),
            device,
            below,
            resizes,
            who: match own {
                Some(_) => path::Runner::Submitter,
                None => path::Runner::Dispatcher,
            },
            own,
            queues,
            single: Slab::with_capacity(PATH_QUEUE_DEPTH),
            merged: Slab::with_capacity(PATH_QUEUE_DEPTH),
            merged_requests: 0,
            unsent: VecDeque::new(),
            batch: Vec::new(),
            spare_entries: Vec::new(),
            spare_extents: Vec::new(),
            own_done: VecDeque::new(),
            steps: 0,
            steps_seen: 0,
            extents_max: capabilities.extents_max as usize,
            bytes_max: capabilities.max_transfer_bytes.into(),
            submitted: false,
            refused: false,
            unfinished: false,
            closing: false,
            gone: false,
            now: Time::ZERO,
            progress_at: Time::ZERO,
            stats,
        })
    }

    /// Starts running a queue.
    pub(super) fn begin(&mut self, queue: usize, term: Term) {
        self.steps += 1;
        let before = self.terms[queue].map_or(0, |held| held.under_way);
        self.terms[queue] = Some(Held {
            term,
            first: true,
            under_way: before,
            over: false,
        });
    }

    pub(super) fn runs(&self, queue: usize) -> bool {
        self.terms[queue].is_some_and(|held| !held.over)
    }

    /// Returns true if this thread has anything in flight, or runs a queue.
    pub(super) fn is_active(&self) -> bool {
        let running = self.terms.iter().any(Option::is_some);
        running || !self.single.is_empty() || !self.unsent.is_empty()
    }

    /// Sends a request of this thread that bypasses the queues.
    pub(super) fn submit_own(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if self.single.is_full() || !self.unsent.is_empty() {
            return Submit::Busy(request);
        }
        let tag = request.tag;
        let Ok(key) = self.single.insert(Single::Own(tag)) else {
            return Submit::Busy(request);
        };
        request.tag = key.tag();
        let submit = match self.below.submit(request, cx) {
            // Not progress: a thread that retries would otherwise poll forever.
            Submit::Busy(request) => {
                self.single.remove(key);
                return Submit::Busy(Request { tag, ..request });
            }
            Submit::Queued => Submit::Queued,
            Submit::Done(completion) => {
                self.single.remove(key);
                Submit::Done(Completion { tag, ..completion })
            }
        };
        self.submitted = true;
        self.progress_at = cx.now;
        self.stats.sent(1);
        submit
    }

    /// Takes a completed request of [`submit_own`](Self::submit_own).
    pub(super) fn own_done(&mut self) -> Option<Completion> {
        self.own_done.pop_front()
    }

    /// Sets the number of incomplete requests of its own submitter.
    pub(super) fn note_outstanding(&mut self, outstanding: usize) {
        if let Some(own) = &mut self.own {
            own.outstanding = outstanding;
        }
    }

    /// Returns true if the channel below is gone although the device is not.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns true as [`Channel::is_back`].
    pub(super) fn is_back(&self) -> bool {
        !self.gone && self.below.is_back()
    }

    /// Returns the result of opening the channel below, as [`Channel::opened`].
    pub(super) fn opened(&self) -> Option<Result<(), DeviceError>> {
        self.below.opened()
    }

    /// Losses of the device's cache, as [`Channel::losses`].
    pub(super) fn losses(&self) -> Option<u32> {
        self.below.losses()
    }

    /// Returns true if another thread must run the queues. A blocking call with nothing outstanding
    /// returns, and its thread does not run its channel until the next call.
    fn leaves(&self) -> bool {
        let is_idle = |own: &Own| own.only_in_calls && own.outstanding <= own.inbox.len();
        self.closing || self.gone || self.own.as_ref().is_some_and(is_idle)
    }

    /// Runs this thread's queues as far as possible without waiting.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        self.now = cx.now;
        self.work(cx);
        if std::mem::replace(&mut self.steps_seen, self.steps) != self.steps {
            self.progress_at = cx.now;
        }
    }

    fn work(&mut self, cx: &mut Context<'_>) {
        self.below.tick(cx);
        self.gone &= !self.below.is_back();
        self.collect();
        self.send_unsent(cx);
        self.unfinished = false;
        for queue in 0..self.queues.len() {
            // Requests that the device completes at once leave room for the next batch.
            let mut batches = 0;
            while batches < BATCHES_A_TURN && self.look(queue, cx) {
                self.dispatch(queue, cx);
                self.collect();
                batches += 1;
            }
            self.unfinished |= batches == BATCHES_A_TURN;
        }
        if std::mem::take(&mut self.submitted) {
            self.below.kick(cx);
            self.collect();
        }
        // Extents of a failed command are sent again although the device below may be idle.
        self.unfinished |= !self.unsent.is_empty() && !self.refused;
    }

    /// Takes a batch of a queue, if this thread runs it and may. Returns true if it has one.
    fn look(&mut self, index: usize, cx: &Context<'_>) -> bool {
        let leaves = self.leaves();
        let queue = &self.queues[index];
        let Some(held) = &mut self.terms[index] else {
            return false;
        };
        if held.under_way > 0 && (held.over || queue.kind.one_batch()) {
            held.over |= !queue.note_run(held.term, cx.now);
            return false;
        }
        if leaves && !held.over {
            match &self.own {
                Some(own) if self.gone => {
                    // Requests of its own submitter in the queue fail like those that it submits
                    // now.
                    for entry in queue.withdraw(&own.inbox, cx.now) {
                        entry.finish(Err(BlockError::Gone), None);
                    }
                }
                None if self.gone => queue.stop_serving(),
                _ => {}
            }
            queue.leave(held.term, cx.now);
            held.over = true;
        }
        if held.over {
            if held.under_way == 0 {
                self.terms[index] = None;
            }
            return false;
        }
        let taken = self.single.len() + self.merged_requests;
        if taken + BATCH_REQUESTS_MAX > self.single.capacity() || !self.unsent.is_empty() {
            return false;
        }
        let first = std::mem::take(&mut held.first);
        let look = queue.take_batch(held.term, first, self.who, cx.now, &mut self.batch);
        match look {
            Look::Batch => true,
            Look::Over => {
                held.over = true;
                if held.under_way == 0 {
                    self.terms[index] = None;
                }
                false
            }
        }
    }

    /// Builds commands from the batch, and sends them.
    fn dispatch(&mut self, queue: usize, cx: &mut Context<'_>) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_unstable_by_key(|entry| (kind_of(entry.operation), entry.lba.0));
        let mut rest = batch.drain(..).peekable();
        while let Some(first) = rest.next() {
            let operation = first.operation;
            let merge = self.queues[queue].kind.merge(operation == Operation::Read);
            let mut end = first.lba.0.saturating_add(first.blocks.into());
            let mut blocks = u64::from(first.blocks);
            let mut entries = self.spare_entries.pop().unwrap_or_default();
            entries.push(first);
            while entries.len() < self.extents_max
                && let Some(next) = rest.next_if(|next| {
                    let fits = blocks + u64::from(next.blocks) <= self.bytes_max / self.block_bytes;
                    fits && joins(merge, operation, end, next)
                })
            {
                end = next.lba.0.saturating_add(next.blocks.into());
                blocks += u64::from(next.blocks);
                entries.push(next);
            }
            self.stats.sent(entries.len());
            self.begun(queue);
            let command = if entries.len() > 1 {
                let extents = self.spare_extents.pop().unwrap_or_default();
                self.merged_requests += entries.len();
                merged(&mut self.merged, queue, entries, extents)
            } else {
                let entry = entries.pop().expect("the first one");
                self.spare_entries.push(entries);
                single(&mut self.single, queue, entry)
            };
            self.unsent.push_back(command);
        }
        drop(rest);
        self.batch = batch;
        self.send_unsent(cx);
    }

    /// Reopens the dispatcher's channel if the device was resized, as submitters do with theirs:
    /// the old one may refer to memory that no longer belongs to the device. Checked after a batch
    /// was taken, which may come from a submitter that has reopened. Returns false while the old
    /// channel is closing.
    fn reopen(&mut self, cx: &mut Context<'_>) -> bool {
        let resizes = resizes(&self.queues);
        if self.own.is_some() || self.resizes == resizes || self.unsent.is_empty() {
            return true;
        }
        // A device is resized while nothing is in flight.
        let idle = self.single.len() + self.merged.len() == self.unsent.len();
        if idle {
            self.below.close(cx);
        }
        if !idle || !self.below.closed() {
            return false;
        }
        match self.device.open(cx.driver) {
            Ok(below) => (self.below, self.resizes) = (below, resizes),
            // Its requests fail; the next batch tries again.
            Err(_) => self.below = Box::new(Dropped),
        }
        true
    }

    /// Sends the waiting commands in order while there is room.
    fn send_unsent(&mut self, cx: &mut Context<'_>) {
        self.refused = !self.reopen(cx);
        if self.refused {
            return;
        }
        while let Some(command) = self.unsent.pop_front() {
            self.submitted = true;
            match command {
                Command::Single(request) => match self.below.submit(request, cx) {
                    Submit::Done(completion) => self.finish_single(completion),
                    Submit::Queued => self.steps += 1,
                    Submit::Busy(request) => {
                        self.unsent.push_front(Command::Single(request));
                        self.refused = true;
                        return;
                    }
                },
                Command::Merged(extents) => match self.below.submit_extents(extents, cx) {
                    Submit::Done(extents) => self.finish_merged(extents),
                    Submit::Queued => self.steps += 1,
                    Submit::Busy(extents) => {
                        self.unsent.push_front(Command::Merged(extents));
                        self.refused = true;
                        return;
                    }
                },
            }
        }
    }

    /// Distributes the completions of the channel below.
    fn collect(&mut self) {
        while let Some(completion) = self.below.reap() {
            self.finish_single(completion);
        }
        while let Some(extents) = self.below.reap_extents() {
            self.finish_merged(extents);
        }
    }

    fn finish_single(&mut self, completion: Completion) {
        self.refused = false;
        let single = self.single.remove(SlabKey::from_tag(completion.tag));
        match single.expect("a request completes once") {
            Single::Own(tag) => self.own_done.push_back(Completion { tag, ..completion }),
            Single::Queued(queue, entry) => {
                self.ended(queue);
                self.finish_entry(queue, entry, completion.result);
            }
        }
    }

    /// Completes a request of a queue. If the channel below is gone but the device is not, another
    /// thread sends it, unless it belongs to this thread's submitter.
    fn finish_entry(&mut self, queue: usize, entry: Entry, result: Result<(), BlockError>) {
        if result == Err(BlockError::Gone) && self.device.outlives_channels() {
            self.gone = true;
            let own = self.own.as_ref();
            if !own.is_some_and(|own| Arc::ptr_eq(&own.inbox, &entry.inbox)) {
                if mutation::active(Mutation::BatchNotPutBack) {
                    return;
                }
                return self.queues[queue].put_back(entry, self.now);
            }
        }
        let hidden = mutation::active(Mutation::PathErrorHidden);
        let result = if hidden { Ok(()) } else { result };
        let flushes = entry.operation == Operation::Flush;
        let losses = flushes.then(|| self.below.losses()).flatten();
        entry.finish(result, losses);
    }

    fn finish_merged(&mut self, mut extents: Extents) {
        self.refused = false;
        let merged = self.merged.remove(SlabKey::from_tag(extents.tag));
        let Merged { queue, mut entries } = merged.expect("a command completes once");
        self.ended(queue);
        self.merged_requests -= entries.len();
        assert_eq!(
            entries.len(),
            extents.extents.len(),
            "its extents come back"
        );
        let most = if mutation::active(Mutation::MergedEndsFirst) {
            1
        } else {
            entries.len()
        };
        for (entry, extent) in entries.drain(..).zip(extents.extents.drain(..)).take(most) {
            match extent.result {
                // A device may fail a whole command for one extent. Requests of other threads must
                // not share that, so each is sent again alone.
                Err(error) if !matches!(error, BlockError::Gone | BlockError::Aborted) => {
                    self.begun(queue);
                    let command = single(&mut self.single, queue, entry);
                    self.unsent.push_back(command);
                }
                result => self.finish_entry(queue, entry, result),
            }
        }
        self.spare_entries.push(entries);
        self.spare_extents.push(extents.extents);
        // If they share a processor, the woken threads put their next requests into the queue
        // before this thread sends its own, which would otherwise be sent alone.
        std::thread::yield_now();
    }

    /// Counts a command of a queue of this thread as in flight.
    fn begun(&mut self, queue: usize) {
        let held = self.terms[queue].as_mut();
        held.expect("only a runner sends").under_way += 1;
    }

    fn ended(&mut self, queue: usize) {
        self.steps += 1;
        let held = self.terms[queue].as_mut();
        let held = held.expect("a thread runs a queue until what it sent is complete");
        held.under_way -= 1;
    }

    pub(super) fn owns(&self, op_namespace: reactor::OpNamespace) -> bool {
        self.below.owns(op_namespace)
    }

    pub(super) fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.below.complete(completion, cx);
        self.turn(cx);
    }

    /// Returns the time at which the channel below must run. A polling runner runs again at once
    /// until the device has not answered for longer than polling pays off; then it sleeps, and its
    /// queues are taken over only if that lasts.
    pub(super) fn deadline(&self, polls: bool) -> Time {
        if self.unfinished {
            return Time::ZERO;
        }
        if !self.is_active() {
            return self.below.deadline();
        }
        if polls && self.now < self.progress_at + POLL_WINDOW {
            return Time::ZERO;
        }
        let below = self.below.deadline();
        if below > Time::ZERO {
            for (queue, held) in self.queues.iter().zip(&self.terms) {
                if let Some(held) = held.filter(|held| !held.over) {
                    queue.note_sleep(held.term, self.progress_at);
                }
            }
        }
        below
    }

    /// Takes no further batch; commands in flight complete.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        self.turn(cx);
    }

    /// Closes the channel below; requests of other threads in flight must be complete.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        self.below.close(cx);
        self.turn(cx);
    }

    pub(super) fn closed(&self) -> bool {
        !self.is_active() && self.below.closed()
    }

    /// As [`Channel::abandon`].
    pub(super) fn abandon(&mut self, guard: &Guard) {
        self.below.abandon(guard);
    }
}

/// Requests of a dropped runner. They end as aborted once none of them can take effect any more.
#[derive(Debug)]
struct Aborted(Vec<Entry>);

impl Drop for Aborted {
    fn drop(&mut self) {
        for entry in &self.0 {
            entry.finish(Err(BlockError::Aborted), None);
        }
    }
}

/// Returns the number of resizes of the device of these queues.
fn resizes(queues: &[SharedQueue]) -> u32 {
    queues.first().map_or(0, SharedQueue::resizes)
}

impl Drop for Runner {
    /// A thread that ends with outstanding work leaves no other thread waiting: its requests in
    /// flight for other threads end as aborted, and a waiting thread runs the queued ones.
    fn drop(&mut self) {
        let single = self.single.iter().filter_map(|(_, single)| match single {
            Single::Queued(_, entry) => Some(entry),
            Single::Own(_) => None,
        });
        let merged = self.merged.iter().flat_map(|(_, merged)| &merged.entries);
        let entries = single.chain(merged).chain(&self.batch).cloned();
        let silent = mutation::active(Mutation::DeadRunnerSilent);
        let aborted = Aborted(entries.filter(|_| !silent).collect());
        let guard: Guard = Arc::new(aborted);
        self.below.abandon(&guard);
        // First: the channel closes the blocks that requests in flight may still write.
        self.below = Box::new(Dropped);
        drop(guard);
        if silent {
            return;
        }
        for (queue, held) in self.queues.iter().zip(&self.terms) {
            if let Some(held) = held.filter(|held| !held.over) {
                // The next runner uses its own clock.
                queue.leave(held.term, Time::ZERO);
            }
        }
    }
}
