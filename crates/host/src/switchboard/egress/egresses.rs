//! The egresses of a core: lookup by number, and the list of those that each turn serves.
//!
//! An idle connected target costs nothing per turn: its egresses are served again when a request or
//! a completion reaches them, or when an association has moved.

use crate::channel::RemoteChannel;
use crate::recovery::epoch::Phase;
use crate::recovery::machine::ChannelState;
use crate::switchboard::ingress::IngressRequest;
use crate::switchboard::ingress::TargetNumber;
use base::Time;
use block::{BlockError, Channel, Request, Submit};
use reactor::{Context, IoSlice, Memory, OpNamespace, RegionHandle, Wake};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use switch::{Class, PerClass};

/// The egress of one (class, target).
#[derive(Debug)]
pub(super) struct Egress {
    pub(super) target: u16,
    /// Keeps the number in use while the egress exists.
    pub(super) _number: Arc<TargetNumber>,
    pub(super) class: Class,
    pub(super) channel: RemoteChannel,
    /// True if it has no queue, as reported to submitters.
    pub(super) refused: bool,
    /// Requests for which there was no room, in order; at most as many as all submitters may have
    /// outstanding.
    pub(super) backlog: VecDeque<IngressRequest>,
    /// Lower bound of the limits of its requests.
    pub(super) backlog_limit: Time,
}

/// Result of handing a request to an egress.
pub(super) enum Outcome {
    Taken,
    Busy,
    Done(Result<(), BlockError>),
}

impl Egress {
    /// Returns true if the association is over, and the lane has no request and no connection left.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let is_gone =
            self.channel.state().is_over() && self.channel.association().phase() == Phase::Gone;
        if !is_gone || self.channel.outstanding() > 0 || !self.backlog.is_empty() {
            return false;
        }
        self.channel.close(cx);
        self.channel.closed()
    }

    #[inline]
    pub(super) fn submit(
        &mut self,
        entry: IngressRequest,
        memory: &RegionHandle,
        cx: &mut Context<'_>,
    ) -> Outcome {
        let data = entry.data.map(|(offset, length)| {
            let memory = Memory::Region(memory.clone());
            IoSlice::new(memory, offset as usize, length as usize)
        });
        let request = Request {
            tag: pack(entry.submitter, entry.slot, entry.class),
            operation: entry.operation,
            lba: entry.lba,
            blocks: entry.blocks,
            data,
        };
        let namespace = usize::from(entry.namespace);
        match self
            .channel
            .submit_limited(namespace, request, entry.limit, cx)
        {
            Submit::Queued => Outcome::Taken,
            Submit::Busy(_) => Outcome::Busy,
            Submit::Done(done) => Outcome::Done(done.result),
        }
    }
}

impl Egress {
    /// Returns true if nothing happens here before a request arrives or the association moves.
    fn is_at_rest(&self) -> bool {
        self.channel.state() == ChannelState::Live
            && self.channel.outstanding() == 0
            && self.backlog.is_empty()
            && self.channel.deadline() == Time::NEVER
    }
}

impl Egress {
    /// Queues a request for which there is no room.
    pub(super) fn keep(&mut self, entry: IngressRequest) {
        self.backlog_limit = self.backlog_limit.min(entry.limit);
        self.backlog.push_back(entry);
    }

    /// Removes the given-up requests from the backlog.
    pub(super) fn take_kept(
        &mut self,
        is_given_up: impl Fn(&IngressRequest) -> bool,
    ) -> Vec<IngressRequest> {
        let mut taken = Vec::new();
        self.backlog_limit = Time::NEVER;
        self.backlog.retain(|entry| {
            if is_given_up(entry) {
                taken.push(*entry);
                return false;
            }
            self.backlog_limit = self.backlog_limit.min(entry.limit);
            true
        });
        taken
    }
}

/// Packs submitter, slot and class into a request's tag.
#[inline]
pub(super) fn pack(submitter: u32, slot: u32, class: Class) -> u64 {
    u64::from(submitter) << 32 | u64::from(slot) << 8 | class.index() as u64
}

#[inline]
pub(super) fn unpack(tag: u64) -> (u32, u32, Class) {
    let class = Class::ALL[(tag & 0xff) as usize];
    let slot = u32::try_from(tag >> 8 & 0xff_ffff).expect("24 bits");
    (
        u32::try_from(tag >> 32).expect("the upper half"),
        slot,
        class,
    )
}

/// Wakes a dataplane thread because an association has moved.
#[derive(Debug)]
pub(super) struct AssociationNotice {
    moved: AtomicBool,
    thread: Arc<dyn Wake>,
}

impl Wake for AssociationNotice {
    fn wake(&self) {
        self.moved.store(true, Ordering::Release);
        self.thread.wake();
    }
}

/// The egresses of a core.
#[derive(Debug, Default)]
pub(super) struct Egresses {
    /// Ordered by class, earlier classes first.
    list: Vec<Egress>,
    /// Indices of the egresses that are not at rest, in order.
    busy: Vec<usize>,
    /// Index of the egress of each class, by target number.
    by_target: Vec<PerClass<Option<usize>>>,
    /// Index by the number of the operation namespace.
    by_op_namespace: Vec<Option<usize>>,
    /// Index of the egress, among those that may wait, that sends first in the next turn.
    first: usize,
    notice: Option<Arc<AssociationNotice>>,
}

impl Egresses {
    /// Returns the waker for associations; `thread` wakes this core's thread.
    pub(super) fn notice(&mut self, thread: impl FnOnce() -> Arc<dyn Wake>) -> Arc<dyn Wake> {
        let notice = self.notice.get_or_insert_with(|| {
            let (moved, thread) = (AtomicBool::new(false), thread());
            Arc::new(AssociationNotice { moved, thread })
        });
        Arc::clone(notice) as Arc<dyn Wake>
    }

    pub(super) fn add(&mut self, egress: Egress) {
        self.list.push(egress);
        // The order in which they are served.
        self.list.sort_by_key(|egress| egress.class.index());
        self.number();
    }

    /// Removes the egresses for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl FnMut(&mut Egress) -> bool) {
        let before = self.list.len();
        self.list.retain_mut(keep);
        if self.list.len() != before {
            self.number();
        }
    }

    fn number(&mut self) {
        self.by_target.clear();
        self.by_op_namespace.clear();
        for (index, egress) in self.list.iter().enumerate() {
            let target = usize::from(egress.target);
            if self.by_target.len() <= target {
                self.by_target.resize_with(target + 1, PerClass::default);
            }
            self.by_target[target][egress.class] = Some(index);
            let op_namespace = usize::from(egress.channel.op_namespace().0);
            if self.by_op_namespace.len() <= op_namespace {
                self.by_op_namespace.resize(op_namespace + 1, None);
            }
            self.by_op_namespace[op_namespace] = Some(index);
        }
        self.all_busy();
    }

    fn all_busy(&mut self) {
        self.busy.clear();
        self.busy.extend(0..self.list.len());
    }

    fn set_busy(&mut self, index: usize) {
        if let Err(place) = self.busy.binary_search(&index) {
            self.busy.insert(place, index);
        }
    }

    /// Returns the egress of `class` and target, and marks it busy.
    pub(super) fn reach(&mut self, target: u16, class: Class) -> Option<&mut Egress> {
        let index = self.by_target.get(usize::from(target))?[class]?;
        self.set_busy(index);
        Some(&mut self.list[index])
    }

    /// Returns the egress of a completed operation, and marks it busy.
    pub(super) fn of_operation(&mut self, op_namespace: OpNamespace) -> Option<&mut Egress> {
        let index = (*self.by_op_namespace.get(usize::from(op_namespace.0))?)?;
        self.set_busy(index);
        Some(&mut self.list[index])
    }

    /// Returns all egresses without marking them busy.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Egress> {
        self.list.iter_mut()
    }

    /// Closes all channels.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        for egress in &mut self.list {
            egress.channel.close(cx);
        }
        self.all_busy();
    }

    /// Checks, before a turn, whether an association has moved.
    pub(super) fn look(&mut self) {
        let moved = |notice: &AssociationNotice| {
            notice.moved.load(Ordering::Relaxed) && notice.moved.swap(false, Ordering::Acquire)
        };
        if self.notice.as_deref().is_some_and(moved) {
            self.all_busy();
        }
    }

    /// Ends a turn: removes the egresses at rest from the busy ones.
    pub(super) fn rest(&mut self) {
        let list = &self.list;
        self.busy.retain(|&index| !list[index].is_at_rest());
    }

    /// Returns the number of busy egresses.
    pub(super) fn busy_count(&self) -> usize {
        self.busy.len()
    }

    /// Returns the busy egress with this index.
    pub(super) fn busy(&mut self, nth: usize) -> &mut Egress {
        &mut self.list[self.busy[nth]]
    }

    /// Returns the busy egresses.
    pub(super) fn each_busy(&self) -> impl Iterator<Item = &Egress> {
        self.busy.iter().map(|&index| &self.list[index])
    }

    /// Returns the number of busy egresses before the one that sends first.
    pub(super) fn before_first(&self) -> usize {
        self.busy.partition_point(|&index| index < self.first)
    }

    /// Makes the busy egress with this index send first in the next turn.
    pub(super) fn begin_with(&mut self, nth: usize) {
        self.first = self.busy[nth];
    }

    /// Returns true if all channels are closed.
    pub(super) fn all_closed(&self) -> bool {
        self.list.iter().all(|egress| egress.channel.closed())
    }
}
