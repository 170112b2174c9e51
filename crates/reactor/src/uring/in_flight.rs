//! Outstanding operations of an operation namespace, and the guards of those that were abandoned.

use super::UringDriver;
use super::operations::{RingOp, Watch};
use crate::op::OpNamespace;
use crate::op_namespace::Guard;

impl UringDriver {
    /// Drops the guards of the namespaces of which no file operation is outstanding.
    pub(super) fn release_guards(&self) {
        let guards = &self.op_namespaces.guards;
        if guards.borrow().is_empty() {
            return;
        }
        let is_over = |guard: &mut (OpNamespace, Guard)| !self.has_file_operation_of(guard.0);
        let over: Vec<_> = guards.borrow_mut().extract_if(.., is_over).collect();
        // With the list free: what a guard tells may come back to it.
        drop(over);
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

    /// Returns true if an operation of `op_namespace` has not been reaped yet. Looks at everything
    /// there is: this is for when namespaces change hands.
    pub(super) fn has_operation_of(&self, op_namespace: OpNamespace) -> bool {
        let in_ring = self.operations.iter().any(|(_, entry)| match &entry.kind {
            RingOp::Accept(_, key)
            | RingOp::AcceptPause(_, key)
            | RingOp::Connect(key, _)
            | RingOp::File(key, _)
            | RingOp::Ublk(key)
            | RingOp::Watch(Watch { key, .. }) => key.op_namespace == op_namespace,
            // The driver's own, or a socket's: its operations are looked at below.
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
            || self
                .ready
                .iter()
                .any(|ready| ready.key.op_namespace == op_namespace)
    }
}
