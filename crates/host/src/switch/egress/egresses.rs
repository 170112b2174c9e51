//! The egresses of a core: which of them needs a look in each turn, and which is meant by a number.
//!
//! A target that is connected and idle costs a turn nothing: its egresses are looked at again when a
//! request or a completion reaches them, or when an association has moved.

use super::Egress;
use crate::channel::ChannelState;
use base::Time;
use block::Channel;
use reactor::{Context, OpNamespace, Wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use switch::{Class, PerClass};

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
    /// Earlier classes first.
    list: Vec<Egress>,
    /// Places of the egresses that are not at rest, in order.
    busy: Vec<usize>,
    /// Place of the egress with a target's lanes of a class, by the target's number.
    by_target: Vec<PerClass<Option<usize>>>,
    /// Place by the number of the operation namespace.
    by_op_namespace: Vec<Option<usize>>,
    /// Of those that may wait, the egress that is first to send in the next turn.
    first: usize,
    notice: Option<Arc<AssociationNotice>>,
}

impl Egress {
    /// Returns true if nothing happens here before a request comes or the association moves.
    fn is_at_rest(&self) -> bool {
        self.channel.state() == ChannelState::Live
            && self.channel.outstanding() == 0
            && self.backlog.is_empty()
            && self.channel.deadline() == Time::NEVER
    }
}

impl Egresses {
    /// The waker that associations get; `thread` wakes this core's thread.
    pub(super) fn notice(&mut self, thread: impl FnOnce() -> Arc<dyn Wake>) -> Arc<dyn Wake> {
        let notice = self.notice.get_or_insert_with(|| {
            let (moved, thread) = (AtomicBool::new(false), thread());
            Arc::new(AssociationNotice { moved, thread })
        });
        Arc::clone(notice) as Arc<dyn Wake>
    }

    pub(super) fn add(&mut self, egress: Egress) {
        self.list.push(egress);
        // In the order in which they are served.
        self.list.sort_by_key(|egress| egress.class.index());
        self.number();
    }

    /// Removes those for which `keep` returns false.
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

    /// The egress with a target's lanes of `class`, which gets something to do.
    pub(super) fn reach(&mut self, target: u16, class: Class) -> Option<&mut Egress> {
        let index = self.by_target.get(usize::from(target))?[class]?;
        self.set_busy(index);
        Some(&mut self.list[index])
    }

    /// The egress of an operation, which is over.
    pub(super) fn of_operation(&mut self, op_namespace: OpNamespace) -> Option<&mut Egress> {
        let index = (*self.by_op_namespace.get(usize::from(op_namespace.0))?)?;
        self.set_busy(index);
        Some(&mut self.list[index])
    }

    /// All of them; none gets something to do.
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

    /// Looks whether an association has moved, before a turn.
    pub(super) fn look(&mut self) {
        let moved = |notice: &AssociationNotice| {
            notice.moved.load(Ordering::Relaxed) && notice.moved.swap(false, Ordering::Acquire)
        };
        if self.notice.as_deref().is_some_and(moved) {
            self.all_busy();
        }
    }

    /// Ends a turn: those that are at rest now need no further look.
    pub(super) fn rest(&mut self) {
        let list = &self.list;
        self.busy.retain(|&index| !list[index].is_at_rest());
    }

    /// Number of egresses that are not at rest.
    pub(super) fn busy_count(&self) -> usize {
        self.busy.len()
    }

    /// One of those that are not at rest.
    pub(super) fn busy(&mut self, nth: usize) -> &mut Egress {
        &mut self.list[self.busy[nth]]
    }

    /// Those that are not at rest.
    pub(super) fn each_busy(&self) -> impl Iterator<Item = &Egress> {
        self.busy.iter().map(|&index| &self.list[index])
    }

    /// Number of those that are not at rest and come before the one that is first to send.
    pub(super) fn before_first(&self) -> usize {
        self.busy.partition_point(|&index| index < self.first)
    }

    /// The egress is first to send in the next turn.
    pub(super) fn begin_with(&mut self, nth: usize) {
        self.first = self.busy[nth];
    }

    /// Returns true if all channels are closed.
    pub(super) fn all_closed(&self) -> bool {
        self.list.iter().all(|egress| egress.channel.closed())
    }
}
