//! Outstanding operations of an operation namespace, and the guards of abandoned ones.

use super::UringDriver;
use super::operations::{RingOp, Watch};
use crate::op::{OpKey, OpNamespace};
use crate::op_namespace::Guard;

impl UringDriver {
    /// Resets the connections of abandoned namespaces, and drops the guards of those without an
    /// outstanding file operation.
    pub(super) fn release_guards(&mut self) {
        if self.op_namespaces.guards.borrow().is_empty() {
            return;
        }
        let guards = self.op_namespaces.guards.take();
        for (op_namespace, _) in &guards {
            self.reset_sockets_of(*op_namespace);
        }
        let is_left = |guard: &(OpNamespace, Guard)| self.has_file_operation_of(guard.0);
        let (left, over): (Vec<_>, Vec<_>) = guards.into_iter().partition(is_left);
        self.op_namespaces.guards.borrow_mut().extend(left);
        // After the list is released: dropping a guard may access it again.
        drop(over);
    }

    /// Ends the sends and receives of a namespace, which are useless without the rest of their
    /// streams.
    fn reset_sockets_of(&mut self, op_namespace: OpNamespace) {
        let its = self.sockets.iter().filter(|(_, socket)| {
            let sending = socket.sending.as_ref().map(|sending| sending.key);
            let receiving = socket.receiving.as_ref().map(|receiving| receiving.key);
            let mut keys = [sending, receiving].into_iter().flatten();
            keys.any(|key| key.op_namespace == op_namespace)
        });
        let its: Vec<_> = its.map(|(slot, _)| slot).collect();
        for slot in its {
            self.reset(slot, OpKey::single(op_namespace, 0));
        }
    }

    fn has_file_operation_of(&self, op_namespace: OpNamespace) -> bool {
        let in_ring = self.operations.iter().any(|(_, entry)| {
            matches!(&entry.kind, RingOp::File(key, _) if key.op_namespace == op_namespace)
        });
        in_ring || self.waits_in_backlog(op_namespace)
    }

    fn waits_in_backlog(&self, op_namespace: OpNamespace) -> bool {
        let mut waiting = self.backlog.iter();
        waiting.any(|(key, _)| key.op_namespace == op_namespace)
    }

    /// Returns true if an operation of `op_namespace` has not been reaped yet. Scans everything, so
    /// it is used only when namespaces change owners.
    pub(super) fn has_operation_of(&self, op_namespace: OpNamespace) -> bool {
        let in_ring = self.operations.iter().any(|(_, entry)| match &entry.kind {
            RingOp::Accept(_, key)
            | RingOp::AcceptPause(_, key)
            | RingOp::Connect(key, ..)
            | RingOp::File(key, _)
            | RingOp::Ublk(key)
            | RingOp::Watch(Watch { key, .. }) => key.op_namespace == op_namespace,
            // The driver's own, or a socket's, whose operations are checked below.
            RingOp::Wake | RingOp::Arrival(_) | RingOp::SendSpace(_) => false,
        });
        let on_sockets = self.sockets.iter().any(|(_, socket)| {
            let keys = [
                socket.sending.as_ref().map(|sending| sending.key),
                socket.receiving.as_ref().map(|receiving| receiving.key),
                socket.closing,
            ];
            keys.into_iter()
                .flatten()
                .any(|key| key.op_namespace == op_namespace)
        });
        in_ring
            || on_sockets
            || self.waits_in_backlog(op_namespace)
            || self.shakes_hands(op_namespace)
            || self.computes_for(op_namespace)
            || self
                .ready
                .iter()
                .any(|ready| ready.key.op_namespace == op_namespace)
    }
}
