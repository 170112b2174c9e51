//! A request of a tenant.

use base::Time;
use qos::PricedOperation;

/// Bytes of a command's capsule. `[NVMe-TCP 1.0 §3.6.2.6]`
const COMMAND_BYTES: u64 = 72;

/// Bytes of a data header, or of a response. `[NVMe-TCP 1.0 §3.6.2.10]`
const ANSWER_BYTES: u64 = 24;

/// A request of a tenant, with its thread and connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    pub(super) tenant: usize,
    pub(super) pace: u32,
    pub(super) arrived: Time,
    pub(super) read: bool,
    pub(super) pages: u32,
    pub(super) bytes: u32,
    pub(super) thread: usize,
    /// Index among all tenants' connections.
    pub(super) connection: usize,
}

impl Request {
    /// Returns the bytes received with it in addition to the command.
    pub(super) fn received_bytes(&self) -> u64 {
        let data = if self.read { 0 } else { self.bytes };
        COMMAND_BYTES + u64::from(data)
    }

    /// Returns the bytes of its answer.
    pub(super) fn sent_bytes(&self) -> u64 {
        let data = if self.read { self.bytes } else { 0 };
        ANSWER_BYTES + u64::from(data)
    }

    /// Returns its operation in the cost model.
    pub(super) const fn operation(&self) -> PricedOperation {
        if self.read {
            PricedOperation::Read
        } else {
            PricedOperation::Write
        }
    }
}
