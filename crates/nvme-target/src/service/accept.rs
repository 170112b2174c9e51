//! New connections: the first core accepts them, and keeps them until Connect. Admin queues stay, I/O
//! queues are dealt out when they are connected.

use crate::permit::ConnectionPermit;
use crate::service::connection::Connection;
use crate::service::poll_group::PollGroup;
use base::SlabKey;
use reactor::{Context, Op, OpKey, Stream};
use std::net::SocketAddr;

/// Kind of the operation that accepts; its slot is the listener's place in our list.
const ACCEPT: u8 = 0;

impl PollGroup {
    pub(super) fn start_accepting(&mut self, cx: &mut Context<'_>) {
        self.accepting = true;
        for (index, &listener) in (0u32..).zip(&self.listeners) {
            let key = OpKey {
                op_namespace: self.core.op_namespace,
                kind: ACCEPT,
                generation: 0,
                index,
            };
            cx.submit(key, Op::Accept { listener });
        }
    }

    pub(super) fn accepted(&mut self, stream: Stream, peer: SocketAddr, cx: &mut Context<'_>) {
        match self.core.shared.permits.take(peer.ip()) {
            Ok(permit) => self.adopt(stream, peer, permit, cx),
            Err(refused) => {
                refused.count(&mut self.core.stats);
                self.refuse(peer, cx);
            }
        }
    }

    /// Lets a connection fall: there is no room for it.
    fn refuse(&mut self, peer: SocketAddr, cx: &Context<'_>) {
        self.core.touch();
        self.core.stats.refused += 1;
        if let Some(suppressed) = self.core.log_budget.allow(peer.ip(), cx.now) {
            tracing::warn!(%peer, suppressed, "refused a connection: too many are open");
        }
    }

    fn adopt(
        &mut self,
        stream: Stream,
        peer: SocketAddr,
        permit: ConnectionPermit,
        cx: &mut Context<'_>,
    ) {
        if self.core.connections.fresh >= self.core.limits.fresh_max() {
            self.end_oldest_fresh(cx);
        }
        let full = self.connections.is_full() || !cx.driver.has_room_for_socket();
        if full || self.draining {
            self.refuse(peer, cx);
            return;
        }
        let core = &mut self.core;
        core.touch();
        core.stats.accepted += 1;
        let local = stream.local_address();
        let socket = cx.driver.adopt(stream);
        let now = cx.now;
        let ends = (peer, local);
        let connection = Box::new(Connection::new(socket, ends, permit, core, now));
        let Ok(key) = self.connections.insert(connection) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(key) {
            connection.set_key(key);
            connection.start(core, cx);
            self.fresh.push_back(key);
        }
        self.forget_known();
    }

    /// Silent connections must not keep out others: the one that has been silent for longest closes.
    fn end_oldest_fresh(&mut self, cx: &mut Context<'_>) {
        while let Some(key) = self.fresh.pop_front() {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if !connection.is_fresh() {
                continue;
            }
            self.core.stats.refused += 1;
            self.core.stats.fresh_closed += 1;
            let peer = connection.peer;
            if let Some(suppressed) = self.core.log_budget.allow(peer.ip(), cx.now) {
                tracing::warn!(%peer, suppressed, "closed a connection that has not said who it is: \
                     too many have not");
            }
            connection.close(&mut self.core, cx);
            return;
        }
    }

    /// Keeps the list of fresh connections as short as their limit.
    fn forget_known(&mut self) {
        let connections = &self.connections;
        let is_fresh = |key: SlabKey| connections.get(key).is_some_and(|c| c.is_fresh());
        while self.fresh.front().is_some_and(|&key| !is_fresh(key)) {
            self.fresh.pop_front();
        }
        if self.fresh.len() >= 2 * self.core.limits.fresh_connections {
            self.fresh.retain(|&key| is_fresh(key));
        }
    }
}
