//! The blocks that a command names, and where its data is.

use crate::namespace::CoreNamespace;
use crate::qos::access::Rights;
use crate::session::event::Payload;
use block::Direct;
use qos::access::Need;
use reactor::{IoSlice, Memory, UnorderedStores};
use wire::nvme::{Command, DataPointer, LbaCommand, Status};

/// Returns the run of blocks that a command names, and its bytes: checked against the namespace
/// and, all of it, against the host's rights.
#[inline]
pub(crate) fn check(
    command: &Command,
    need: Need,
    rights: Option<&Rights>,
    namespace: Option<&CoreNamespace>,
    transfer_bytes_max: u32,
) -> Result<(LbaCommand, u32), Status> {
    let run = LbaCommand::parse(command);
    if command.fuse() != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    if let Some(rights) = rights {
        rights.check(run.nsid, need, run.slba, u64::from(run.blocks))?;
    }
    let bytes = u64::from(run.blocks) << namespace.block_shift;
    if bytes > u64::from(transfer_bytes_max) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if !namespace.contains(run.slba, u64::from(run.blocks)) {
        return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
    }
    let bytes = u32::try_from(bytes).expect("at most the limit of a transfer");
    Ok((run, bytes))
}

/// Checks that a command which is answered with `bytes` bytes of data brings none.
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

/// Returns the memory of a device that holds a run of blocks.
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

/// Returns the place of a command's data: `None` where R2Ts have to ask for it; in the capsule, the
/// bytes to skip, and the data itself if it is here.
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
