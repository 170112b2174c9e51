//! Blocks that namespaces gave up of devices of their own: they are made to read as zeroes while the
//! namespaces go on.
//!
//! No core reaches these blocks any more once all have opened the namespace with its new size, so
//! nothing is paused for it, and no change waits. Until it is done, no namespace over the device may
//! reach into them. The state file has what is left ([`Erasing`](crate::state::Erasing)), and the next start goes on
//! with it.

use crate::limits::ERASE_PIECE_BYTES;
use block::{Device, DeviceError};
use std::fmt;
use std::ops::Range;
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

/// The bytes of a device that are still to be erased: its blocks may be of another size the next time
/// that it is opened.
#[derive(Debug, Default)]
pub(super) struct Erasure {
    state: Mutex<ErasureState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct ErasureState {
    /// None is empty. The last one is under way, from its end down.
    pub(super) ranges: Vec<Range<u64>>,
    /// A thread erases them.
    pub(super) running: bool,
    /// That thread is to end after the piece that it is at.
    stopped: bool,
    /// The reason for which the last attempt failed.
    pub(super) error: Option<String>,
}

impl Erasure {
    pub(super) fn lock(&self) -> MutexGuard<'_, ErasureState> {
        // Every change is one assignment, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another range erased, which is not empty and overlaps none.
    pub(super) fn add(&self, range: Range<u64>) {
        self.lock().ranges.insert(0, range);
    }

    /// Returns true if any of the first `bytes` bytes of the device is still to be erased.
    pub(super) fn reaches_below(&self, bytes: u64) -> bool {
        self.lock().ranges.iter().any(|range| range.start < bytes)
    }

    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        self.lock().ranges.clone()
    }

    /// Erases a piece. Returns false where there is nothing left.
    pub(super) fn erase_piece(&self, device: &dyn Device) -> Result<bool, DeviceError> {
        let Some(range) = self.lock().ranges.last().cloned() else {
            return Ok(false);
        };
        let start = (range.end - 1) / ERASE_PIECE_BYTES * ERASE_PIECE_BYTES;
        let start = start.max(range.start);
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
    pub(super) fn start(
        self: &Arc<Self>,
        name: &str,
        device: &Arc<dyn Device>,
        erased: &Arc<Erased>,
    ) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use block::device::Ram;

    #[test]
    fn a_range_is_erased_piece_by_piece_from_its_end() {
        let piece = ERASE_PIECE_BYTES;
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
