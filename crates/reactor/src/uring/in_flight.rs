//! Outstanding operations of an operation namespace.

use super::UringDriver;
use super::operations::{RingOp, Watch};
use crate::op::OpNamespace;

impl UringDriver {
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
            || self
                .backlog
                .iter()
                .any(|(key, _)| key.op_namespace == op_namespace)
            || self
                .ready
                .iter()
                .any(|ready| ready.key.op_namespace == op_namespace)
    }
}
