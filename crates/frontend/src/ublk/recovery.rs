//! Devices left by a killed server.

use super::abi::{Control, DeviceInfo, DeviceState, Parameters, features};
use super::control::Driver;
use super::{UblkError, Wanted, open_device};
use crate::limits::UBLK_LEFT_TIME;
use block::Geometry;
use std::io;
use std::time::{Duration, Instant};

/// Interval between checks of a device whose process is about to end.
const LOOK: Duration = Duration::from_millis(10);

/// The result of a search for a device number.
pub(super) enum Found {
    /// No device has the number.
    Nothing,
    /// A device that waits for this process, and its size in the kernel.
    Left(DeviceInfo, Geometry),
}

/// Searches for a device with the number `id` that a server has left. A device that never had a
/// block device is removed.
///
/// # Errors Another process serves it, or it does not match `wanted`.
pub(super) fn find(
    driver: &mut Driver,
    id: u32,
    wanted: &Wanted,
    queues: Option<u16>,
) -> Result<Found, UblkError> {
    let end = Instant::now() + Duration::from(UBLK_LEFT_TIME);
    loop {
        let info = driver.info(id);
        let Some(info) = info.map_err(UblkError::command(Control::GetDeviceInfo, id))? else {
            return Ok(Found::Nothing);
        };
        let process = info.process;
        let taken = UblkError::Taken { id, process };
        let done = match info.state {
            DeviceState::Live if is_alive(process) => return Err(taken),
            // The kernel is about to detect that the process has ended.
            DeviceState::Live => None,
            DeviceState::Quiesced => {
                let geometry = check(driver, &info, wanted, queues)?;
                return Ok(Found::Left(info, geometry));
            }
            // Without a block device it is of no use, unless its server is about to create one.
            DeviceState::Dead if open_device(id).is_ok() => {
                let removed = driver.execute(Control::DeleteDevice, id, 0);
                removed.map_err(UblkError::command(Control::DeleteDevice, id))?;
                Some(Found::Nothing)
            }
            DeviceState::Dead => None,
            DeviceState::Other(state) => {
                let reason =
                    format!("it is in state {state}; remove it with the program that created it");
                return Err(UblkError::Different { id, reason });
            }
        };
        if let Some(found) = done {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(taken);
        }
        std::thread::sleep(LOOK);
    }
}

/// Begins the recovery of a device that was [found](find). Fetch its requests at once: of a server
/// that dies in between, the kernel may refuse every successor.
///
/// # Errors Another process serves it by now.
pub(super) fn begin(driver: &mut Driver, info: &DeviceInfo) -> Result<(), UblkError> {
    let DeviceInfo { id, process, .. } = *info;
    let end = Instant::now() + Duration::from(UBLK_LEFT_TIME);
    loop {
        let begun = unless_begun(driver.execute(Control::StartRecovery, id, 0));
        if unless_busy(begun, Control::StartRecovery, id)?.is_some() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(UblkError::Taken { id, process });
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns true if a process is running: a killed process no longer has a program.
fn is_alive(process: i32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
}

/// Accepts the refusal of a recovery that another process has begun, which ended before it fetched
/// requests: the kernel does not begin it twice. It may also refuse the memory of this process, for
/// another try. Only one process at a time can open the device.
fn unless_begun(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            Ok(())
        }
        other => other,
    }
}

/// Returns `None` if the kernel is still closing the files of the killed process.
fn unless_busy(result: io::Result<()>, command: Control, id: u32) -> Result<Option<()>, UblkError> {
    match result {
        Ok(()) => Ok(Some(())),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => Err(UblkError::command(command, id)(error)),
    }
}

/// Refuses a device that would not be the same afterwards. Returns its size in the kernel.
fn check(
    driver: &mut Driver,
    info: &DeviceInfo,
    wanted: &Wanted,
    queues: Option<u16>,
) -> Result<Geometry, UblkError> {
    let id = info.id;
    let parameters = driver.parameters(id);
    let parameters = parameters.map_err(UblkError::command(Control::GetParameters, id))?;
    match difference(info, &parameters, wanted, queues) {
        Some(reason) => Err(UblkError::Different { id, reason }),
        None => Ok(parameters.geometry),
    }
}

/// Returns the difference between the device that was left and the wanted one.
fn difference(
    info: &DeviceInfo,
    left: &Parameters,
    wanted: &Wanted,
    queues: Option<u16>,
) -> Option<String> {
    if info.flags & features::NEEDED != features::NEEDED {
        return Some("it was created by another program".to_owned());
    }
    let (has, wants) = (left.geometry, wanted.parameters.geometry);
    // A volume that has grown is the same; its new size is reported to the kernel later.
    if has.block_bytes != wants.block_bytes || has.blocks > wants.blocks {
        return Some(format!(
            "it has {} blocks of {} bytes, but this device has {} blocks of {} bytes",
            has.blocks, has.block_bytes, wants.blocks, wants.block_bytes
        ));
    }
    if info.identity != wanted.info.identity {
        let reason = "it belongs to another volume, or to a RAM device that was lost; use another \
            --id, use its volume, or remove it (`ublk del` of ublksrv)";
        return Some(reason.to_owned());
    }
    if left.read_only != wanted.parameters.read_only {
        let kind = if left.read_only { "is" } else { "is not" };
        return Some(format!("it {kind} read-only; use the same --read-only"));
    }
    match queues {
        Some(queues) if queues != info.queues => Some(format!(
            "it has {} queues; omit --queues, or use this number",
            info.queues
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left() -> Wanted {
        let info = DeviceInfo {
            queues: 2,
            depth: 128,
            state: DeviceState::Quiesced,
            request_bytes: 1 << 20,
            id: 0,
            process: 1234,
            flags: features::NEEDED,
            identity: 7,
            life: 9,
        };
        let parameters = Parameters {
            geometry: Geometry {
                block_bytes: 4096,
                blocks: 100,
            },
            read_only: false,
            preferred_bytes: 4096,
            request_bytes: 1 << 20,
            takes_discards: true,
            takes_zeroes: true,
        };
        Wanted { info, parameters }
    }

    /// Returns the difference between the device that was left and one with these parameters and
    /// identity.
    fn difference_from(wanted: Parameters, identity: u32, queues: Option<u16>) -> Option<String> {
        let left = left();
        let wanted = Wanted {
            info: DeviceInfo {
                // As in a request to create it, not as reported by the kernel.
                process: -1,
                // Another cache life is accepted: the kernel's next flush reports the loss.
                life: 10,
                identity,
                ..left.info
            },
            parameters: wanted,
        };
        difference(&left.info, &left.parameters, &wanted, queues)
    }

    #[test]
    fn the_same_device_is_taken_over() {
        let parameters = left().parameters;
        assert_eq!(difference_from(parameters, 7, None), None);
        assert_eq!(difference_from(parameters, 7, Some(2)), None);
        // The sizes of its requests may differ from before.
        let mut other = Parameters {
            request_bytes: 1 << 17,
            preferred_bytes: 1 << 16,
            ..parameters
        };
        assert_eq!(difference_from(other, 7, None), None);
        // The volume has grown.
        other.geometry.blocks = 101;
        assert_eq!(difference_from(other, 7, None), None);
    }

    #[test]
    fn another_device_is_refused_with_the_difference() {
        let parameters = left().parameters;
        let refused = |wanted, queues| difference_from(wanted, 7, queues).expect("it differs");
        let mut other = parameters;
        other.geometry.blocks = 99;
        assert!(refused(other, None).contains("100 blocks"));
        other.geometry = Geometry {
            block_bytes: 512,
            blocks: 800,
        };
        assert!(refused(other, None).contains("800 blocks of 512"));
        let read_only = Parameters {
            read_only: true,
            ..parameters
        };
        assert!(refused(read_only, None).contains("is not read-only"));
        assert!(refused(parameters, Some(1)).contains("2 queues"));
        let foreign = DeviceInfo {
            flags: features::USER_COPY,
            ..left().info
        };
        let foreign = difference(&foreign, &parameters, &left(), None);
        assert!(foreign.expect("it differs").contains("another program"));
    }

    /// A device of the same size over another namespace must not be taken over: data written to the
    /// first one would go there.
    #[test]
    fn another_volume_of_the_same_size_is_refused() {
        let parameters = left().parameters;
        for identity in [0, 8] {
            let difference = difference_from(parameters, identity, None);
            assert!(difference.expect("it differs").contains("another volume"));
        }
    }

    #[test]
    fn a_process_that_is_gone_is_not_alive() {
        let own = i32::try_from(std::process::id()).expect("numbers are small");
        assert!(is_alive(own));
        assert!(!is_alive(-1));
    }
}
