//! Listeners: opened and closed by the first core, which accepts their connections. A connection
//! outlives its listener.

use crate::change::step::NewListener;
use crate::service::poll_group::PollGroup;
use reactor::{Context, ListenerId, Op, OpKey};
use std::net::SocketAddr;

/// Kind of an accept operation; its slot is the listener.
const ACCEPT: u8 = 0;

impl PollGroup {
    pub(super) fn start_accepting(&mut self, cx: &mut Context<'_>) {
        self.accepting = true;
        for index in 0..self.listeners.len() {
            self.accept(self.listeners[index].1, cx);
        }
    }

    pub(super) fn accept(&self, listener: ListenerId, cx: &mut Context<'_>) {
        let key = OpKey {
            op_namespace: self.core.op_namespace,
            kind: ACCEPT,
            generation: 0,
            index: listener.0,
        };
        cx.submit(key, Op::Accept { listener });
    }

    /// Listens, if this is the first core and the target does not end.
    pub(super) fn listen(&mut self, new: &NewListener, cx: &mut Context<'_>) {
        if self.core.index != 0 || self.draining {
            return;
        }
        let opened = cx.driver.listen(new.address, &new.options);
        let bound = opened.map(|(listener, bound)| {
            self.add_listener(new.address, listener);
            self.accept(listener, cx);
            bound
        });
        // Each is delivered once.
        let _ = new.bound.set(bound);
    }

    /// Returns true while the listener of an accept operation is open.
    pub(super) fn listens(&self, slot: u32) -> bool {
        self.listeners
            .iter()
            .any(|(_, listener)| listener.0 == slot)
    }

    pub(super) fn close_listener(&mut self, address: SocketAddr, cx: &mut Context<'_>) {
        self.listeners.retain(|&(requested, listener)| {
            let closes = requested == address;
            if closes {
                cx.driver.close_listener(listener);
            }
            !closes
        });
    }
}
