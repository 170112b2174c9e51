//! Records of finished commands, as clients read them.

use crate::command::table::Row;
use crate::shared::Shared;
use crate::trace::selection::Finished;
use crate::trace::stamps::StageTime;
use serde::{Deserialize, Serialize};
use wire::nvme::IoOpcode;

/// A finished I/O command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// Receipt of the capsule, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Thread of the target, from 0.
    pub thread: usize,
    /// Tenant of the host in the namespace.
    pub tenant: Option<String>,
    /// HOSTNQN.
    pub host: String,
    /// NQN of the subsystem.
    pub nqn: String,
    /// CNTLID.
    pub cntlid: u16,
    /// Queue identifier.
    pub qid: u16,
    /// CID.
    pub cid: u16,
    /// NSID; 4294967295 for all namespaces.
    pub nsid: u32,
    /// Name of the command, such as "read" or "write-zeroes".
    pub command: String,
    /// First block; `None` for a command without a contiguous range of blocks.
    pub slba: Option<u64>,
    /// Bytes of the range.
    pub bytes: u64,
    /// Status of the answer, unless it is success.
    pub error: Option<String>,
    /// Time from the receipt of the capsule until the socket has taken the whole answer.
    pub total_ns: u64,
    /// The stages, by their first times. They add up to `total_ns`.
    pub stages: Vec<StageTime>,
}

impl TraceRecord {
    /// Creates the record of a command. `epoch_unix_ns` is the time of
    /// [`Time::ZERO`](base::Time::ZERO), in nanoseconds since 1970.
    pub(crate) fn new(finished: &Finished, shared: &Shared, epoch_unix_ns: u64) -> Self {
        let Finished {
            stamps, controller, ..
        } = finished;
        let tenants = controller.tenants(&shared.rules());
        let subsystem = controller.subsystem.as_ref();
        Self {
            unix_ns: epoch_unix_ns.saturating_add(stamps.began.0),
            thread: finished.core,
            tenant: tenants.tenant(stamps.nsid).map(str::to_owned),
            host: controller.host_nqn.clone(),
            nqn: subsystem.map_or_else(String::new, |it| it.nqn.clone()),
            cntlid: controller.id,
            qid: finished.queue,
            cid: stamps.cid,
            nsid: stamps.nsid,
            command: command_name(stamps.opcode).unwrap_or_default(),
            slba: stamps.slba,
            bytes: stamps.bytes,
            error: (!stamps.status.is_success()).then(|| stamps.status.to_string()),
            total_ns: stamps.total().0,
            stages: stamps.stages(),
        }
    }
}

/// Returns the name of an I/O command, as [`TraceRecord::command`] has it; `None` if the target
/// does not know the opcode.
#[must_use]
pub fn command_name(opcode: u8) -> Option<String> {
    let name = Row::of(opcode).and(IoOpcode(opcode).name())?;
    Some(name.to_ascii_lowercase().replace(' ', "-"))
}

/// Returns the names of all I/O commands of a target, each with its opcode.
pub fn commands() -> impl Iterator<Item = (u8, String)> {
    (0..=u8::MAX).filter_map(|opcode| Some((opcode, command_name(opcode)?)))
}
