//! Barrier, a vendor command: waits until every earlier command of its tenant is through
//! (docs/decisions/0015-barrier.md).

use crate::namespace::CoreNamespace;
use crate::qos::access::Rights;
use wire::nvme::{Command, Status, vendor};

/// Checks a Barrier. Returns its NSID.
pub(crate) fn check(
    command: &Command,
    offered: bool,
    rights: Option<&Rights>,
    namespace: Option<&CoreNamespace>,
) -> Result<u32, Status> {
    let vendor::Barrier { nsid } = vendor::Barrier::parse(command);
    if !offered {
        return Err(Status::INVALID_OPCODE.with_dnr());
    }
    if command.fuse() != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if namespace.is_none() {
        return Err(Status::INVALID_NAMESPACE.with_dnr());
    }
    if let Some(rights) = rights {
        rights.check_any(nsid)?;
    }
    Ok(nsid)
}
