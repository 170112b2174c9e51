//! Devices that a killed server left behind.

use super::abi::{Control, DeviceInfo, DeviceState, Parameters, features};
use super::control::Driver;
use super::{UblkError, open_device};
use crate::limits::UBLK_LEFT_TIME;
use std::io;
use std::time::{Duration, Instant};

/// Time between two looks at a device that a process is about to leave.
const LOOK: Duration = Duration::from_millis(10);

/// The finding about a number.
pub(super) enum Found {
    /// No device has it.
    Nothing,
    /// A device that waits for this process.
    Left(DeviceInfo),
}

/// Looks for a device with the number `id`, and makes one that a killed server left behind ready to be
/// served by this process; one that never had a block device is removed.
///
/// # Errors
/// Where another process serves it, or where it is not the one that is `wanted`.
pub(super) fn find(
    driver: &mut Driver,
    id: u32,
    wanted: &Parameters,
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
            // The kernel is about to notice that the process has ended.
            DeviceState::Live => None,
            DeviceState::Quiesced => {
                check(driver, &info, wanted, queues)?;
                let ready = driver.execute(Control::StartRecovery, id, 0);
                unless_busy(ready, Control::StartRecovery, id)?.map(|()| Found::Left(info))
            }
            // Without a block device nothing waits for it, unless it is about to get one.
            DeviceState::Dead if open_device(id).is_ok() => {
                let removed = driver.execute(Control::DeleteDevice, id, 0);
                removed.map_err(UblkError::command(Control::DeleteDevice, id))?;
                Some(Found::Nothing)
            }
            DeviceState::Dead => None,
            DeviceState::Other(state) => {
                let reason =
                    format!("it is in state {state}; remove it by the program that made it");
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

/// Returns true if a process runs: one that was killed has no program any more.
fn is_alive(process: i32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
}

/// Returns `None` where the kernel still closes what the killed process had open.
fn unless_busy(result: io::Result<()>, command: Control, id: u32) -> Result<Option<()>, UblkError> {
    match result {
        Ok(()) => Ok(Some(())),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => Err(UblkError::command(command, id)(error)),
    }
}

/// Refuses a device that would not be the same one afterwards.
fn check(
    driver: &mut Driver,
    info: &DeviceInfo,
    wanted: &Parameters,
    queues: Option<u16>,
) -> Result<(), UblkError> {
    let id = info.id;
    let parameters = driver.parameters(id);
    let parameters = parameters.map_err(UblkError::command(Control::GetParameters, id))?;
    match difference(info, &parameters, wanted, queues) {
        Some(reason) => Err(UblkError::Different { id, reason }),
        None => Ok(()),
    }
}

/// Returns the difference between a device that was left and the one that is wanted.
fn difference(
    info: &DeviceInfo,
    left: &Parameters,
    wanted: &Parameters,
    queues: Option<u16>,
) -> Option<String> {
    if info.flags & features::NEEDED != features::NEEDED {
        return Some("it was made by another program".to_owned());
    }
    let (has, wants) = (left.geometry, wanted.geometry);
    if has != wants {
        return Some(format!(
            "it has {} blocks of {} bytes, and this device {} of {}",
            has.blocks, has.block_bytes, wants.blocks, wants.block_bytes
        ));
    }
    if left.read_only != wanted.read_only {
        let kind = if left.read_only { "is" } else { "is not" };
        return Some(format!("it {kind} read-only: give the same --read-only"));
    }
    match queues {
        Some(queues) if queues != info.queues => Some(format!(
            "it has {} queues: omit --queues, or give this number",
            info.queues
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Geometry;

    fn left() -> (DeviceInfo, Parameters) {
        let info = DeviceInfo {
            queues: 2,
            depth: 128,
            state: DeviceState::Quiesced,
            request_bytes: 1 << 20,
            id: 0,
            process: 1234,
            flags: features::NEEDED,
        };
        let parameters = Parameters {
            geometry: Geometry {
                block_bytes: 4096,
                blocks: 100,
            },
            read_only: false,
            preferred_bytes: 4096,
            request_bytes: 1 << 20,
        };
        (info, parameters)
    }

    #[test]
    fn the_same_device_is_taken_over() {
        let (info, parameters) = left();
        assert_eq!(difference(&info, &parameters, &parameters, None), None);
        assert_eq!(difference(&info, &parameters, &parameters, Some(2)), None);
        // The data of its requests may come in other pieces than before.
        let other = Parameters {
            request_bytes: 1 << 17,
            preferred_bytes: 1 << 16,
            ..parameters
        };
        assert_eq!(difference(&info, &parameters, &other, None), None);
    }

    #[test]
    fn another_device_is_refused_with_the_difference() {
        let (info, parameters) = left();
        let refused = |info: DeviceInfo, wanted: Parameters, queues| {
            difference(&info, &parameters, &wanted, queues).expect("it differs")
        };
        let mut other = parameters;
        other.geometry.blocks = 99;
        assert!(refused(info, other, None).contains("100 blocks"));
        other.geometry = Geometry {
            block_bytes: 512,
            blocks: 800,
        };
        assert!(refused(info, other, None).contains("800 of 512"));
        let read_only = Parameters {
            read_only: true,
            ..parameters
        };
        assert!(refused(info, read_only, None).contains("is not read-only"));
        assert!(refused(info, parameters, Some(1)).contains("2 queues"));
        let foreign = DeviceInfo {
            flags: features::USER_COPY,
            ..info
        };
        assert!(refused(foreign, parameters, None).contains("another program"));
    }

    #[test]
    fn a_process_that_is_gone_is_not_alive() {
        let own = i32::try_from(std::process::id()).expect("numbers are small");
        assert!(is_alive(own));
        assert!(!is_alive(-1));
    }
}
