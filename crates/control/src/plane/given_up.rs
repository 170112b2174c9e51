//! Blocks that namespaces gave up: what is still to be [erased](super::erasure), and refusals of
//! namespaces that would show it.

use super::{OpenDevice, Opened, Plane, whole_blocks};
use crate::action::Action;
use crate::error::ApplyError;
use crate::snapshot::ErasingSnapshot;
use crate::state::Erasing;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl OpenDevice {
    /// Refuses a namespace of so many blocks that would show what is still to be erased.
    pub(super) fn check_erased(&self, name: &str, blocks: u64) -> Result<(), ApplyError> {
        let ranges = self.erasure.ranges();
        let Some(first) = ranges.iter().map(|range| range.start).min() else {
            return Ok(());
        };
        if self.bytes(&(0..blocks)).end <= first {
            return Ok(());
        }
        let message = format!(
            "device {name:?} is being erased from byte {first} on, where a namespace over it was \
             made smaller; {} bytes are left",
            left(&ranges)
        );
        let remedy = "wait until it is done (`erasing` in GET /v1/stats), or choose a size that \
                      ends before that byte";
        Err(ApplyError::conflict(message, remedy))
    }

    /// Returns the bytes of a range of its blocks.
    fn bytes(&self, blocks: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.device.geometry().block_bytes);
        let bytes = |blocks: u64| blocks.saturating_mul(block);
        bytes(blocks.start)..bytes(blocks.end)
    }

    /// Returns a range of its bytes as the state file has it.
    fn erasing(&self, name: &str, range: &Range<u64>) -> Erasing {
        Erasing {
            device: name.to_owned(),
            content: self.content.clone(),
            first_byte: range.start,
            end_byte: range.end,
        }
    }
}

fn left(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

impl Opened {
    /// Removes a device, which is erased further only where the same change adds it again.
    pub(super) fn remove_device(&mut self, name: &str) {
        let Some(device) = self.devices.remove(name) else {
            return;
        };
        let ranges = device.erasure.ranges();
        let left = ranges.iter().map(|range| device.erasing(name, range));
        self.left.extend(left);
    }

    /// Adds a device, with what is left to be erased of it.
    pub(super) fn add_device(&mut self, name: &str, opened: OpenDevice) {
        let bytes = opened.device.geometry().bytes();
        for left in self.left.extract_if(.., |left| left.device == name) {
            let range = left.first_byte..left.end_byte.min(bytes);
            if left.content == opened.content && !range.is_empty() {
                opened.erasure.add(range);
            } else {
                tracing::warn!(
                    device = name,
                    "it was to be erased from byte {} on, and is another one now: it is left as it \
                     is",
                    left.first_byte
                );
            }
        }
        self.devices.insert(name.to_owned(), opened);
    }
}

impl Plane {
    /// See [`DataPlane::gives_up`](crate::DataPlane::gives_up).
    pub(super) fn given_up_by(&self, action: &Action) -> Option<Erasing> {
        let Action::ResizeNamespace {
            nqn,
            nsid,
            size,
            device_size,
        } = action
        else {
            return None;
        };
        let opened = self.opened();
        let user = opened.users.get(&(nqn.clone(), *nsid))?;
        let mut device = opened.devices.get(&user.device)?.clone();
        device.stated = device_size.map(|size| size.bytes);
        let blocks = whole_blocks(&*device.device, device.size_of_namespace(*size)).ok()?;
        let range = user.view.given_up(blocks);
        (!range.is_empty()).then(|| device.erasing(&user.device, &device.bytes(&range)))
    }

    /// See [`DataPlane::erasing`](crate::DataPlane::erasing).
    pub(super) fn still_erasing(&self) -> Vec<Erasing> {
        let opened = self.opened();
        let devices = opened.devices.iter().flat_map(|(name, device)| {
            let ranges = device.erasure.ranges().into_iter();
            ranges.map(move |range| device.erasing(name, &range))
        });
        devices.collect()
    }

    /// The same, as it is shown.
    pub(super) fn erasing_snapshots(&self) -> Vec<ErasingSnapshot> {
        let opened = self.opened();
        let devices = opened.devices.iter().filter_map(|(name, device)| {
            let state = device.erasure.lock();
            (!state.ranges.is_empty()).then(|| ErasingSnapshot {
                device: name.clone(),
                bytes_left: left(&state.ranges),
                error: state.error.clone(),
            })
        });
        devices.collect()
    }

    /// See [`DataPlane::begin_erasing`](crate::DataPlane::begin_erasing).
    pub(super) fn erase_given_up(&self) {
        self.serves.store(true, Ordering::Relaxed);
        let opened = &mut *self.opened();
        opened.left.clear();
        for user in std::mem::take(&mut opened.resized) {
            let Some(user) = opened.users.get(&user) else {
                continue;
            };
            let range = user.view.take_given_up();
            if let Some(device) = opened.devices.get(&user.device)
                && !range.is_empty()
            {
                device.erasure.add(device.bytes(&range));
            }
        }
        for (name, device) in &opened.devices {
            device.erasure.start(name, &device.device, &self.erased);
        }
    }

    /// Waits for what a namespace of so many blocks would show, where no core serves yet; otherwise
    /// refuses it.
    pub(super) fn erase_before(
        &self,
        name: &str,
        device: &OpenDevice,
        blocks: u64,
    ) -> Result<(), ApplyError> {
        if !self.serves.load(Ordering::Relaxed)
            && device.erasure.reaches_below(device.bytes(&(0..blocks)).end)
        {
            tracing::warn!(
                device = name,
                "it is erased where a namespace was made smaller before it is served"
            );
            let mut erased = Ok(true);
            while let Ok(true) = erased {
                erased = device.erasure.erase_piece(&*device.device);
            }
            erased.map_err(|error| {
                let remedy = "correct the device, or leave it out";
                ApplyError::failed(error.to_string(), remedy)
            })?;
        }
        device.check_erased(name, blocks)
    }

    /// Has nothing erase a device that is to be removed, for which it waits a while.
    pub(super) fn stop_erasing(&self, name: &str) -> Result<(), ApplyError> {
        let erasure = Arc::clone(&self.device(name)?.erasure);
        erasure.stop();
        if self.is_still(|| erasure.is_running()) {
            let message = format!("device {name:?} is being erased and does not answer");
            let remedy = "try again when there is less to do";
            return Err(ApplyError::failed(message, remedy));
        }
        Ok(())
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for device in self.opened().devices.values() {
            device.erasure.stop();
        }
    }
}
