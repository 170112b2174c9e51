//! The blocks of a command, and the location of its data.

use crate::command::table::{CommandKind, Form, Row};
use crate::limits::Limits;
use crate::namespace::CoreNamespace;
use crate::qos::access::Rights;
use crate::request::OtherHalf;
use crate::reservation::state::HostId;
use crate::session::event::Payload;
use block::Direct;
use reactor::{IoSlice, Memory, UnorderedStores};
use wire::nvme::{Command, DataPointer, DatasetManagement, LbaCommand, Status};

/// A command that passed the checks of its table row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) kind: CommandKind,
    pub(crate) nsid: u32,
    /// Incarnation of the namespace that the command was checked against; 0 for all namespaces.
    pub(crate) incarnation: u32,
    /// The contiguous block range; unused for a command without blocks, or with a list.
    pub(crate) run: LbaCommand,
    /// Bytes of the range; 0 if it is unused.
    pub(crate) bytes: u32,
    /// The other half, if the command is fused.
    pub(crate) fused: Option<OtherHalf>,
}

/// Checks a command by its row: namespace, its ANA state and reservation, the host's rights to every
/// block, size, range, write protection, PRACT. Returns it with its namespace. Lists of ranges and
/// tables of extents are checked block by block when they have arrived.
#[inline]
pub(crate) fn check<'n>(
    row: &Row,
    command: &Command,
    (host, rights): (&HostId, Option<&Rights>),
    namespace: Option<&'n mut CoreNamespace>,
    limits: &Limits,
) -> Result<(Admitted, &'n mut CoreNamespace), Status> {
    let run = LbaCommand::parse(command);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    namespace.check_access()?;
    check_reservation(row, host, namespace)?;
    let names_run = !matches!(row.form, Form::Ranges | Form::Extents | Form::Flush);
    let mut bytes = 0;
    if names_run {
        let blocks = u64::from(run.blocks);
        if let Some(rights) = rights {
            rights.check(run.nsid, row.kind.need(), run.slba, blocks)?;
        }
        // A range without data is sent to the device in pieces.
        let most = match row.form {
            Form::Blocks => u32::MAX,
            _ => limits.transfer_bytes,
        };
        let all = blocks << namespace.block_shift;
        bytes = u32::try_from(all).unwrap_or(u32::MAX);
        if all > u64::from(most) {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if !namespace.contains(run.slba, blocks) {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
    } else if let Some(rights) = rights {
        rights.check_any(run.nsid)?;
    }
    let hints = row.form == Form::Ranges && !DatasetManagement::parse(command).deallocate;
    if namespace.read_only && row.kind.changes_data() && !hints {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    if !row.pract && run.control.protection_action() {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let admitted = Admitted {
        kind: row.kind,
        nsid: run.nsid,
        incarnation: namespace.incarnation,
        run,
        bytes,
        fused: None,
    };
    Ok((admitted, namespace))
}

/// Refuses a command that the reservation of its namespace excludes.
#[inline]
pub(crate) fn check_reservation(
    row: &Row,
    host: &HostId,
    namespace: &CoreNamespace,
) -> Result<(), Status> {
    match &namespace.exclusion {
        Some(exclusion) if exclusion.refuses(host, row.access) => {
            Err(Status::RESERVATION_CONFLICT.with_dnr())
        }
        _ => Ok(()),
    }
}

/// Checks that a command whose answer has `bytes` bytes of data carries no data itself.
#[inline]
pub(crate) fn check_answer(
    command: &Command,
    payload: Payload<'_>,
    bytes: u32,
) -> Result<(), Status> {
    match (command.data_pointer()?, payload) {
        (DataPointer::Transport { length }, Payload::None) if length == bytes => Ok(()),
        (DataPointer::Transport { .. }, Payload::None) => {
            Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
        }
        _ => Err(Status::INVALID_FIELD.with_dnr()),
    }
}

/// Returns the memory of a device that holds a block range.
#[inline]
pub(crate) fn memory(namespace: &CoreNamespace, lba: u64, bytes: u32) -> Option<IoSlice> {
    let (region, start) = match namespace.direct.as_ref()? {
        Direct::Linear(region) => (region, usize::try_from(lba << namespace.block_shift).ok()?),
        Direct::Null(region) => (region, 0),
    };
    Some(IoSlice::new(
        Memory::Region(region.clone()),
        start,
        bytes as usize,
    ))
}

/// Copies the data of a whole write into the memory of a device.
#[inline]
pub(crate) fn write_memory(
    namespace: &CoreNamespace,
    lba: u64,
    data: &[u8],
) -> Result<UnorderedStores, Status> {
    let Some(Direct::Linear(region)) = &namespace.direct else {
        return Ok(UnorderedStores::default());
    };
    let start = usize::try_from(lba << namespace.block_shift)
        .map_err(|_| Status::LBA_OUT_OF_RANGE.with_dnr())?;
    Ok(region.copy_in_unordered(start, data))
}

/// Returns the location of a command's data: `None` if R2Ts must request it; otherwise the offset
/// in the capsule, and the data itself if it has arrived.
pub(crate) fn arrival<'a>(
    pointer: DataPointer,
    payload: Payload<'a>,
    bytes: u32,
) -> Result<Option<(u32, &'a [u8])>, Status> {
    if pointer.length() != bytes {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    match (pointer, payload) {
        (DataPointer::Transport { .. }, Payload::None) => Ok(None),
        (DataPointer::Transport { .. }, _) => Err(Status::INVALID_FIELD.with_dnr()),
        (DataPointer::InCapsule { offset, .. }, Payload::Arriving(total)) => {
            let skip = u32::try_from(offset).ok().filter(|&skip| skip <= total);
            let skip = skip.ok_or(Status::SGL_OFFSET_INVALID.with_dnr())?;
            if bytes > total - skip {
                return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
            }
            Ok(Some((skip, &[])))
        }
        (pointer, payload) => {
            let capsule = match payload {
                Payload::Whole(capsule, _) => capsule,
                _ => &[],
            };
            let data = pointer.capsule_data(capsule)?;
            Ok(Some((0, data)))
        }
    }
}
