//! The lanes of a channel. A lane is one connection: an I/O queue of the controller.

use crate::association::Association;
use crate::command::exchange::Exchange;
use crate::qpair::{Qpair, QpairConfig};
use base::Time;
use reactor::{Context, OpNamespace, SendListPool};
use switch::Class;

/// A connection of the channel.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) qpair: Qpair,
    /// Identifier of its I/O queue; 0 if it has none.
    pub(super) queue_id: u16,
    /// True while the association counts the connection as open.
    pub(super) open: bool,
    /// True while the connection is being opened and has not been live since.
    pub(super) opening: bool,
    /// True while the lane is in the list of busy lanes.
    listed: bool,
}

/// The lanes of a channel.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) all: Vec<Lane>,
    /// While the channel is live: the lanes with anything in flight. A turn visits only these, so
    /// its cost follows the number of requests, not of connections.
    pub(super) busy: Vec<usize>,
    /// Index of the lane that is tried first for the next request.
    next: usize,
    /// Class of the requests on the lanes.
    pub(super) class: Class,
}

impl Lanes {
    /// `count` closed lanes for `depth` commands each.
    pub(super) fn new(
        config: &QpairConfig,
        op_namespace: OpNamespace,
        (count, depth): (u16, u16),
        lists: &SendListPool,
        class: Class,
    ) -> Self {
        let lane = |index| Lane {
            qpair: Qpair::new(config.clone(), op_namespace, index, depth, lists),
            queue_id: 0,
            open: false,
            opening: false,
            listed: false,
        };
        Self {
            all: (0..u32::from(count)).map(lane).collect(),
            busy: Vec::with_capacity(usize::from(count)),
            next: 0,
            class,
        }
    }

    /// Returns the next lane with room, round robin.
    #[inline]
    pub(super) fn free(&mut self) -> Option<usize> {
        for _ in 0..self.all.len() {
            let lane = self.next;
            self.next = if lane + 1 == self.all.len() {
                0
            } else {
                lane + 1
            };
            if self.all[lane].qpair.has_room() {
                return Some(lane);
            }
        }
        None
    }

    /// Starts a request on a lane with room.
    pub(super) fn start(&mut self, lane: usize, exchange: Exchange, now: Time) {
        self.all[lane].qpair.start(exchange, now);
        self.set_busy(lane);
    }

    /// Makes each turn visit a lane until it is idle.
    pub(super) fn set_busy(&mut self, index: usize) {
        if !std::mem::replace(&mut self.all[index].listed, true) {
            self.busy.push(index);
        }
    }

    /// Ends the visit of the busy lane at this index of the list. Returns true if it is idle;
    /// another lane then has its index.
    pub(super) fn visited(&mut self, place: usize) -> bool {
        let lane = &mut self.all[self.busy[place]];
        let is_idle = lane.qpair.is_idle();
        if is_idle {
            lane.listed = false;
            self.busy.swap_remove(place);
        }
        is_idle
    }

    /// Sends the ready requests of the busy lanes. Returns the bytes of data sent under a doorbell.
    pub(super) fn pump(&mut self, cx: &mut Context<'_>) -> u64 {
        let Self { all, busy, .. } = self;
        let busy = busy.iter();
        busy.map(|&index| all[index].qpair.pump(cx)).sum()
    }

    /// Returns true if no lane has a connection.
    pub(super) fn all_closed(&self) -> bool {
        self.all.iter().all(|lane| lane.qpair.is_closed())
    }

    /// Returns true if any lane is live.
    pub(super) fn any_live(&self) -> bool {
        self.all.iter().any(|lane| lane.qpair.is_live())
    }

    /// Returns the number of lanes that the association counts as open.
    pub(super) fn open(&self) -> u32 {
        let open = self.all.iter().filter(|lane| lane.open).count();
        u32::try_from(open).expect("a lane has an index of 32 bits")
    }

    /// Returns true if any lane has a queue.
    pub(super) fn has_queue(&self) -> bool {
        self.all.iter().any(|lane| lane.queue_id > 0)
    }

    /// Gives each lane a queue, if the controller grants enough: it may grant fewer than before the
    /// association was lost. Identifiers above `after` are tried first.
    pub(super) fn take_queues(&mut self, association: &Association, after: u16) {
        let granted = association.parameters().io_queues;
        self.release_queues(association, granted);
        for lane in &mut self.all {
            if lane.queue_id == 0 {
                lane.queue_id = association.take_queue(granted, after).unwrap_or(0);
            }
        }
    }

    /// Releases the queues with an identifier above `granted`; 0 for all of them.
    pub(super) fn release_queues(&mut self, association: &Association, granted: u16) {
        for lane in &mut self.all {
            if lane.queue_id > granted {
                association.release_queue(lane.queue_id);
                lane.queue_id = 0;
            }
        }
    }
}
