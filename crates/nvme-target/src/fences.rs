//! Fences around blocks: no core executes a command that changes a fenced block, except the fused
//! pair that holds the fence. `[NVMe NVM 1.0 §2.1.4, Base 2.0 §3.4.2]`
//!
//! Pairs on one device execute one after another, in the order of their arrival in its line, so
//! a device has at most one fence. The core of a pair builds and removes the fence by
//! messages; a core acknowledges it when no command of its own that may change the block is at the
//! device. Commands outside of a fence cost nothing for it, and no reader ever waits.

use crate::namespace::CoreNamespace;
use crate::request::Ticket;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device's identity: its address, because the pairs in its line keep it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceId(usize);

impl DeviceId {
    pub(crate) fn of(namespace: &CoreNamespace) -> Self {
        let device = Arc::as_ptr(&namespace.shared.options.device);
        Self(device.cast::<()>().addr())
    }
}

/// The fence of a fused pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) device: DeviceId,
    pub(crate) lba: u64,
    /// The core of the pair.
    pub(crate) core: usize,
    /// The second half of the pair.
    pub(crate) pair: Ticket,
}

/// The pairs of all cores that wait for their fence, and those that have it, by device.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    lines: Mutex<BTreeMap<DeviceId, VecDeque<Fence>>>,
}

impl Fences {
    fn lines(&self) -> MutexGuard<'_, BTreeMap<DeviceId, VecDeque<Fence>>> {
        // Each change is a single step, so a panic leaves the lines consistent.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pair to its device's line. Returns true if it is the first.
    pub(crate) fn enter(&self, fence: Fence) -> bool {
        let mut lines = self.lines();
        let line = lines.entry(fence.device).or_default();
        line.push_back(fence);
        line.len() == 1
    }

    /// Removes the first pair of a device's line. Returns the next one.
    pub(crate) fn leave(&self, device: DeviceId) -> Option<Fence> {
        let mut lines = self.lines();
        let line = lines.get_mut(&device)?;
        line.pop_front();
        let next = line.front().copied();
        if next.is_none() {
            lines.remove(&device);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SlabKey;

    #[test]
    fn pairs_of_a_device_are_served_in_order_and_an_empty_line_has_no_memory() {
        let fences = Fences::default();
        let fence = |device, slot| Fence {
            device: DeviceId(device),
            lba: 7,
            core: 0,
            pair: Ticket {
                connection: SlabKey {
                    index: 0,
                    generation: 0,
                },
                slot,
            },
        };
        assert!(fences.enter(fence(1, 0)));
        assert!(fences.enter(fence(2, 9)), "another device");
        assert!(!fences.enter(fence(1, 1)));
        assert_eq!(fences.leave(DeviceId(1)), Some(fence(1, 1)));
        assert_eq!(fences.leave(DeviceId(1)), None);
        assert_eq!(fences.leave(DeviceId(2)), None);
        assert!(fences.lines().is_empty());
    }
}
