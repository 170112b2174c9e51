//! Devices that another process takes over, or that this one takes over.

use super::Plane;
use super::devices::{HandedDevice, TakenOver};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{MutexGuard, PoisonError};

impl Plane {
    /// Returns the devices for the process that takes the target over, and the files of those that
    /// have one.
    ///
    /// # Errors
    /// A device that cannot be taken over.
    pub(crate) fn hand_over(&self) -> Result<(Vec<HandedDevice>, Vec<File>), String> {
        let (mut devices, mut files) = (Vec::new(), Vec::new());
        for (name, device) in &self.opened().devices {
            if device.cache.is_some() {
                return Err(format!(
                    "device {name:?} has a write-back cache, which is memory of the running target: \
                     restart the target instead"
                ));
            }
            let file = match device.innermost.upgrade() {
                Some(innermost) => innermost.hand_over(),
                None => Ok(None),
            };
            let file = file
                .map_err(|error| format!("device {name:?}: {error}: restart the target instead"))?;
            devices.push(HandedDevice {
                name: name.clone(),
                content: device.content.clone(),
                has_file: file.is_some(),
            });
            files.extend(file);
        }
        Ok((devices, files))
    }

    /// Copies the content of devices that is memory of this process, while no core serves: first
    /// here to what was handed over, then there from it.
    ///
    /// # Errors
    /// Not enough memory.
    pub(crate) fn carry_devices(&self) -> Result<(), String> {
        for (name, device) in &self.opened().devices {
            let carried = device.innermost.upgrade().map_or(Ok(()), |it| it.carry());
            carried.map_err(|error| format!("the content of device {name:?}: {error}"))?;
        }
        Ok(())
    }

    /// Keeps what the process before gives of its devices, until they are opened.
    pub(crate) fn set_taken_over(&self, devices: BTreeMap<String, TakenOver>) {
        *self.lock_taken_over() = devices;
    }

    /// Removes what the process before gives of a device.
    pub(super) fn taken_over(&self, name: &str) -> Option<TakenOver> {
        self.lock_taken_over().remove(name)
    }

    fn lock_taken_over(&self) -> MutexGuard<'_, BTreeMap<String, TakenOver>> {
        // Entries are removed as a whole.
        let locked = self.taken_over.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}
