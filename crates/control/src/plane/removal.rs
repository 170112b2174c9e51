//! Removal of devices.

use super::{OpenDevice, Plane};
use config::ApplyError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks at a device that is removed.
const REMOVAL_POLL: Duration = Duration::from_millis(5);

impl Plane {
    /// Removes a device that no namespace uses, once its cache has written everything back and, where
    /// it has a file, nothing else has it open: the next device may have the same file.
    pub(super) fn remove_device(&self, name: &str) -> Result<(), ApplyError> {
        let OpenDevice {
            device,
            cache,
            innermost,
            is_file,
            ..
        } = self.device(name)?;
        if let Some(cache) = cache {
            let mut has_channels = self.is_still(|| cache.has_channels());
            let dirty = cache.snapshot().dirty;
            if dirty == 0 && has_channels && self.recalibrations.cancel(name).is_ok() {
                // That of the calibration.
                has_channels = self.is_still(|| cache.has_channels());
            }
            if dirty > 0 || has_channels {
                let message = format!(
                    "device {name:?} does not answer its cache, or does not take what that has to \
                     write back ({dirty} pages of 4 KiB), so it is not removed"
                );
                let remedy = "add a namespace over it to have the pages written again; the end of \
                              the target loses them";
                return Err(ApplyError::failed(message, remedy));
            }
        }
        if !is_file {
            self.close_device(name);
            return Ok(());
        }
        // The list of open devices and this function have it, too, and a calibration that runs: that
        // one ends for a removal that nothing else stands in the way of.
        let is_held = |count| self.is_still(|| Arc::strong_count(&device) > count);
        let calibrations = usize::from(self.recalibrations.is_running(name));
        let is_used = is_held(2 + calibrations) || {
            // One that was never begun has nothing to end.
            let _ = self.recalibrations.cancel(name);
            is_held(2)
        };
        if is_used {
            let message = format!(
                "device {name:?} is in use by a thread that does not answer, so it is not removed \
                 and its file stays locked"
            );
            let remedy = "try again when there is less to do";
            return Err(ApplyError::failed(message, remedy));
        }
        self.close_device(name);
        drop(device);
        // Threads of its I/O path end when nothing uses it any more.
        if self.is_still(|| innermost.strong_count() > 0) {
            tracing::warn!(
                device = name,
                "the device is removed, but its I/O path does not answer, so its file is still locked"
            );
        }
        Ok(())
    }

    fn close_device(&self, name: &str) {
        self.opened().devices.remove(name);
        self.recalibrations.forget(name);
    }

    /// Waits while `busy`, at most for as long as a change may take. Returns true if it is then.
    pub(super) fn is_still(&self, busy: impl Fn() -> bool) -> bool {
        let patience: Duration = self.target.limits().change_timeout.into();
        let end = Instant::now() + patience;
        while busy() {
            if Instant::now() >= end {
                return true;
            }
            std::thread::sleep(REMOVAL_POLL);
        }
        false
    }
}
