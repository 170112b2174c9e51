//! What namespaces gave up of devices of their own: made to read as zeroes while they go on.
//!
//! No core reaches these blocks any more once all have opened the namespace with its new size, so
//! nothing is paused for it, and no change waits. Until it is done, no namespace over the device may
//! reach into them. The state file has what is left ([`Erasing`]), and the next start goes on with it.

use super::{OpenDevice, Opened, Plane, whole_blocks};
use crate::action::Action;
use crate::error::{ApplyError, ApplyErrorKind};
use crate::limits::ERASE_PIECE_BYTES;
use crate::snapshot::ErasingSnapshot;
use crate::state::Erasing;
use block::{Device, DeviceError};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Called, on a thread that may block, when all of a device is erased that was to be.
#[derive(Default)]
pub(super) struct Erased(pub(super) OnceLock<Box<dyn Fn() + Send + Sync>>);

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Erased").finish_non_exhaustive()
    }
}

/// Time after which a device that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The blocks of a device that are still to be erased.
#[derive(Debug, Default)]
pub(super) struct Erasure {
    state: Mutex<ErasureState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ErasureState {
    /// None is empty. The last one is under way, from its end down.
    ranges: Vec<Range<u64>>,
    /// A thread erases them.
    running: bool,
    /// That thread is to end after the piece that it is at.
    stopped: bool,
    /// The reason for which the last attempt failed.
    error: Option<String>,
}

impl Erasure {
    fn lock(&self) -> MutexGuard<'_, ErasureState> {
        // Every change is one assignment, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another range erased, which is not empty and overlaps none.
    pub(super) fn add(&self, range: Range<u64>) {
        self.lock().ranges.insert(0, range);
    }

    /// Returns true if any of the first `blocks` blocks of the device is still to be erased.
    pub(super) fn reaches_below(&self, blocks: u64) -> bool {
        self.lock().ranges.iter().any(|range| range.start < blocks)
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        self.lock().ranges.clone()
    }

    /// Erases a piece. Returns false where there is nothing left.
    fn erase_piece(&self, device: &dyn Device) -> Result<bool, DeviceError> {
        let Some(range) = self.lock().ranges.last().cloned() else {
            return Ok(false);
        };
        let piece = ERASE_PIECE_BYTES / u64::from(device.geometry().block_bytes);
        let start = ((range.end - 1) / piece * piece).max(range.start);
        device.erase(start, range.end - start)?;
        let mut state = self.lock();
        state.error = None;
        if start == range.start {
            state.ranges.pop();
        } else if let Some(range) = state.ranges.last_mut() {
            range.end = start;
        }
        Ok(true)
    }

    /// Erases everything, and keeps trying, until it is stopped.
    fn erase_all(&self, name: &str, device: &dyn Device) {
        loop {
            let mut state = self.lock();
            if state.stopped || state.ranges.is_empty() {
                state.running = false;
                return;
            }
            drop(state);
            let Err(error) = self.erase_piece(device) else {
                continue;
            };
            let mut state = self.lock();
            if state.error.is_none() {
                tracing::error!(
                    device = name,
                    "what a namespace gave up is not erased yet, and is tried again: {error}"
                );
            }
            state.error = Some(error.to_string());
            let waits = |state: &mut ErasureState| !state.stopped;
            drop(self.changed.wait_timeout_while(state, RETRY, waits));
        }
    }

    /// Lets a thread erase what is left, unless one does.
    fn start(self: &Arc<Self>, name: &str, device: &Arc<dyn Device>, erased: &Arc<Erased>) {
        let mut state = self.lock();
        state.stopped = false;
        if state.running || state.ranges.is_empty() {
            return;
        }
        state.running = true;
        drop(state);
        let (erasure, device, erased) = (Arc::clone(self), Arc::clone(device), Arc::clone(erased));
        let owned = name.to_owned();
        let work = move || {
            erasure.erase_all(&owned, &*device);
            drop(device);
            if erasure.ranges().is_empty()
                && let Some(erased) = erased.0.get()
            {
                erased();
            }
        };
        let thread = std::thread::Builder::new().name("erase".to_owned());
        if let Err(error) = thread.spawn(work) {
            self.lock().running = false;
            tracing::error!(device = name, "there is no thread to erase it: {error}");
        }
    }

    /// Has the thread end after the piece that it is at.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_running(&self) -> bool {
        self.lock().running
    }
}

impl OpenDevice {
    /// Refuses a namespace of so many blocks that would show what is still to be erased.
    pub(super) fn check_erased(&self, name: &str, blocks: u64) -> Result<(), ApplyError> {
        let ranges = self.erasure.ranges();
        let Some(first) = ranges.iter().map(|range| range.start).min() else {
            return Ok(());
        };
        if blocks <= first {
            return Ok(());
        }
        let block = u64::from(self.device.geometry().block_bytes);
        let message = format!(
            "device {name:?} is being erased from byte {} on, where a namespace over it was made \
             smaller; {} bytes are left",
            first * block,
            left(&ranges) * block
        );
        let remedy = "wait until it is done (`erasing` in GET /v1/stats), or choose a size that \
                      ends before that byte";
        Err(ApplyError::new(ApplyErrorKind::Conflict, message, remedy))
    }

    /// Returns a range of its blocks as the state file has it.
    fn erasing(&self, name: &str, range: &Range<u64>) -> Erasing {
        let block = u64::from(self.device.geometry().block_bytes);
        Erasing {
            device: name.to_owned(),
            content: self.content.clone(),
            first_byte: range.start * block,
            end_byte: range.end * block,
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
        let geometry = opened.device.geometry();
        let block = u64::from(geometry.block_bytes);
        for left in self.left.extract_if(.., |left| left.device == name) {
            let end = (left.end_byte / block).min(geometry.blocks);
            let range = left.first_byte.div_ceil(block)..end;
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
        (!range.is_empty()).then(|| device.erasing(&user.device, &range))
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
            let block = u64::from(device.device.geometry().block_bytes);
            (!state.ranges.is_empty()).then(|| ErasingSnapshot {
                device: name.clone(),
                bytes_left: left(&state.ranges) * block,
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
                device.erasure.add(range);
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
        if !self.serves.load(Ordering::Relaxed) && device.erasure.reaches_below(blocks) {
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
                ApplyError::new(ApplyErrorKind::Failed, error.to_string(), remedy)
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
            return Err(ApplyError::new(ApplyErrorKind::Failed, message, remedy));
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

#[cfg(test)]
mod tests {
    use super::*;
    use block::device::Ram;

    #[test]
    fn a_range_is_erased_piece_by_piece_from_its_end() {
        let piece = ERASE_PIECE_BYTES / 4096;
        let ram = Ram::new(3 * ERASE_PIECE_BYTES, 4096).expect("memory that is not touched");
        let erasure = Erasure::default();
        erasure.add(5..2 * piece + 7);
        // What is added later waits for what is under way.
        erasure.add(1..3);
        let mut left = Vec::new();
        while erasure.erase_piece(&ram).expect("memory") {
            left.push(erasure.ranges());
        }
        let (first, second) = (1..3, |end| 5..end);
        let steps = [
            vec![first.clone(), second(2 * piece)],
            vec![first.clone(), second(piece)],
            vec![first],
            Vec::new(),
        ];
        assert_eq!(left, steps);
        assert!(!erasure.reaches_below(u64::MAX));
    }

    /// A device that fails is tried again, and given up only when that is asked for.
    #[test]
    fn what_cannot_be_erased_stays_to_be_erased() {
        #[derive(Debug)]
        struct Fails(Ram);
        impl Device for Fails {
            fn geometry(&self) -> block::Geometry {
                self.0.geometry()
            }
            fn capabilities(&self) -> block::Capabilities {
                self.0.capabilities()
            }
            fn open(
                &self,
                driver: &mut dyn reactor::Driver,
            ) -> Result<Box<dyn block::Channel>, DeviceError> {
                self.0.open(driver)
            }
        }
        let erasure = Arc::new(Erasure::default());
        erasure.add(1..3);
        let device: Arc<dyn Device> = Arc::new(Fails(Ram::new(1 << 20, 4096).expect("memory")));
        erasure.start("d", &device, &Arc::default());
        while erasure.lock().error.is_none() {
            std::thread::yield_now();
        }
        assert!(erasure.reaches_below(2) && !erasure.reaches_below(1));
        erasure.stop();
        while erasure.is_running() {
            std::thread::yield_now();
        }
        assert!(erasure.reaches_below(2));
    }
}
