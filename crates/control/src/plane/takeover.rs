//! Devices that another process takes over, or that this one takes over.

use super::Plane;
use super::devices::{HandedDevice, TakenOver};
use block::Cache;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl Plane {
    /// Returns the devices for the process that takes the target over, and the files of those that
    /// have one.
    ///
    /// # Errors
    /// A device that cannot be taken over.
    pub(crate) fn hand_over(&self) -> Result<(Vec<HandedDevice>, Vec<File>), String> {
        let (mut devices, mut files) = (Vec::new(), Vec::new());
        for (name, device) in &self.opened().devices {
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

    /// Returns the write-back caches of these devices (`None`: of all), by the device's name.
    fn caches_of(&self, of: Option<&BTreeSet<String>>) -> Vec<(String, Cache)> {
        let opened = self.opened();
        let devices = opened.devices.iter();
        let devices = devices.filter(|(name, _)| of.is_none_or(|of| of.contains(*name)));
        let caches =
            devices.filter_map(|(name, device)| Some((name.clone(), device.cache.clone()?)));
        caches.collect()
    }

    /// Has write-back caches of these devices (`None`: of all) write at once, or as usual.
    pub(crate) fn drain_caches(&self, of: Option<&BTreeSet<String>>, drain: bool) {
        for (_, cache) in self.caches_of(of) {
            cache.set_draining(drain);
        }
    }

    /// Waits until no cache of these devices (`None`: of all) has more than `most` pages to write
    /// back.
    ///
    /// # Errors
    /// One that has more after this time.
    pub(crate) fn wait_for_caches(
        &self,
        of: Option<&BTreeSet<String>>,
        most: u32,
        patience: Duration,
    ) -> Result<(), String> {
        let end = Instant::now() + patience;
        loop {
            let dirty = self.caches_of(of).into_iter().find_map(|(name, cache)| {
                let pages = cache.snapshot().dirty;
                (pages > most).then_some((name, pages))
            });
            let Some((name, pages)) = dirty else {
                return Ok(());
            };
            if Instant::now() >= end {
                return Err(format!(
                    "device {name:?} has {pages} pages of its cache to write back after {} s: retry \
                     with less load, or restart the target",
                    patience.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the life of caches, which ends with the content of unwritten pages.
    pub(crate) const fn cache_life(&self) -> u64 {
        self.cache_life
    }

    /// Continues the life of the caches of another process, which have written everything back.
    pub(crate) const fn set_cache_life(&mut self, life: u64) {
        self.cache_life = life;
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
