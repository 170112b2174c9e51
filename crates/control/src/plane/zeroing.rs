//! Ranges that namespaces over devices of their own gave up when they were made smaller. They keep
//! their content, and are zeroed before a namespace shows them again.

use super::Plane;
use crate::limits::ERASE_PIECE_BYTES;
use crate::snapshot::EraseSnapshot;
use crate::state::ToZero;
use config::ApplyError;
use config::action::Action;
use std::sync::{MutexGuard, PoisonError};

/// Notes the end of an erase when it is dropped.
struct EraseEnds<'a>(&'a Plane);

impl Drop for EraseEnds<'_> {
    fn drop(&mut self) {
        *self.0.erasing() = None;
    }
}

impl Plane {
    /// The erase in progress.
    pub(super) fn erasing(&self) -> MutexGuard<'_, Option<EraseSnapshot>> {
        // It is replaced as a whole.
        self.erasing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`DataPlane::zero_before`](crate::DataPlane::zero_before).
    pub(super) fn zero_shown_by(&self, action: &Action) -> Result<(), ApplyError> {
        match action {
            Action::AddSubsystem { subsystem } => {
                let mut namespaces = subsystem.namespaces.iter();
                namespaces.try_for_each(|namespace| {
                    let size = namespace.size.map(|size| size.bytes);
                    self.zero(&namespace.device, size)
                })
            }
            Action::AddNamespace { namespace, .. } => {
                let size = namespace.size.map(|size| size.bytes);
                self.zero(&namespace.device, size)
            }
            Action::ResizeNamespace {
                nqn,
                nsid,
                size,
                device_size,
            } => {
                let user = (nqn.clone(), *nsid);
                let device = self.opened().users.get(&user).map(|u| u.device.clone());
                let size = size.or(*device_size).map(|size| size.bytes);
                device.map_or(Ok(()), |device| self.zero(&device, size))
            }
            _ => Ok(()),
        }
    }

    /// Zeroes the given-up ranges in the first `size` bytes of a device, `None` for all of it, on
    /// stable storage. A device that is not open has none.
    fn zero(&self, name: &str, size: Option<u64>) -> Result<(), ApplyError> {
        let Ok(opened) = self.device(name) else {
            return Ok(());
        };
        let size = size.unwrap_or(u64::MAX);
        let bytes = opened.device.geometry().bytes();
        let is_shown = |range: &ToZero| {
            range.device == name && range.content == opened.content && range.first_byte < size
        };
        let mut ranges = self.opened().to_zero.clone();
        ranges.retain(is_shown);
        for range in ranges {
            let end = range.end_byte.min(size).min(bytes);
            let mut at = range.first_byte;
            let _ends = EraseEnds(self);
            while at < end {
                let piece = ERASE_PIECE_BYTES - at % ERASE_PIECE_BYTES;
                let piece = piece.min(end - at);
                *self.erasing() = Some(EraseSnapshot {
                    device: name.to_owned(),
                    remaining_bytes: end - at,
                });
                opened.device.erase(at, piece).map_err(|error| {
                    let message = format!(
                        "device {name:?} cannot be zeroed from byte {at} on, which a smaller \
                         namespace gave up: {error}"
                    );
                    let remedy = "choose a size that ends before that byte, correct the device, or \
                                  remove it in a change of its own";
                    ApplyError::failed(message, remedy)
                })?;
                at += piece;
            }
        }
        let mut opened_all = self.opened();
        for range in opened_all
            .to_zero
            .iter_mut()
            .filter(|range| is_shown(range))
        {
            range.first_byte = size.min(range.end_byte);
        }
        opened_all
            .to_zero
            .retain(|range| range.first_byte < range.end_byte);
        Ok(())
    }

    /// See [`DataPlane::settle`](crate::DataPlane::settle).
    pub(super) fn note_given_up(&self) {
        let opened = &mut *self.opened();
        for user in std::mem::take(&mut opened.resized) {
            let Some(user) = opened.users.get(&user) else {
                continue;
            };
            let blocks = user.view.take_given_up();
            let Some(device) = opened.devices.get(&user.device) else {
                continue;
            };
            if blocks.is_empty() {
                continue;
            }
            let block_bytes = u64::from(device.device.geometry().block_bytes);
            let range = ToZero {
                device: user.device.clone(),
                content: device.content.clone(),
                first_byte: blocks.start * block_bytes,
                end_byte: blocks.end * block_bytes,
            };
            let continues = |next: &&mut ToZero| {
                (&next.device, next.first_byte) == (&range.device, range.end_byte)
            };
            match opened.to_zero.iter_mut().find(continues) {
                Some(next) => next.first_byte = range.first_byte,
                None => opened.to_zero.push(range),
            }
        }
        let devices = &opened.devices;
        opened.to_zero.retain(|range| {
            let device = devices.get(&range.device);
            device.is_some_and(|device| device.content == range.content)
        });
    }
}
