//! A channel with nothing outstanding: its thread may be asleep, and a controller that reconnects does
//! not wait for its connections ([`Rest`](crate::recovery::rest::Rest)).

use super::{ChannelState, RemoteChannel};

impl RemoteChannel {
    /// Rests if no connection has a command, and none waits for one.
    pub(super) fn rest(&mut self) {
        let open = |&index: &usize| self.lanes.all[index].open;
        let has_work = self.at_rest
            || self.state() != ChannelState::Live
            || self.lanes.busy.iter().any(open)
            || !self.requests.waiting.is_empty()
            || !self.recovery.is_empty();
        let mut lanes = self.lanes.all.iter();
        if has_work || lanes.any(|lane| lane.open && !lane.qpair.is_idle()) {
            return;
        }
        self.at_rest = true;
        self.rest.begin(self.open_lanes());
        if self.association.epoch() != self.epoch {
            self.association.leave_open(self.rest.retire());
        }
    }

    /// Returns true if the lanes may be used. One that rested does so no more then.
    pub(super) fn is_awake(&mut self) -> bool {
        if self.at_rest && self.association.epoch() == self.epoch {
            self.at_rest = !self.rest.end();
        }
        !self.at_rest
    }

    /// Returns true if commands may be sent.
    pub(super) fn may_send(&mut self) -> bool {
        self.state() == ChannelState::Live && self.is_awake()
    }

    /// Ends the rest of a channel that closes its lanes.
    pub(super) fn end_rest(&mut self) {
        if std::mem::take(&mut self.at_rest) && !self.rest.end() {
            for lane in &mut self.lanes.all {
                lane.open = false;
            }
        }
    }

    /// Returns the number of lanes that the association counts as open.
    pub(super) fn open_lanes(&self) -> u32 {
        let open = self.lanes.all.iter().filter(|lane| lane.open).count();
        u32::try_from(open).expect("a lane has an index of 32 bits")
    }
}
