//! The losses of a device's volatile cache that a client has been told of.

use block::{BlockError, Device};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The losses of a device's volatile cache that one client of a front end knows of.
///
/// Clients share the channels of a core, and a channel reports a loss to the first Flush after it.
/// Each client has to be told of it, since its own writes may be among what was lost; and once, by
/// whichever channel its Flushes go.
#[derive(Clone, Debug)]
pub struct KnownLosses(
    /// One more than their number; 0 where the client does not know of a loss before this process
    /// either.
    Arc<AtomicU32>,
);

impl KnownLosses {
    /// The losses that were reported before a client began. A loss that no Flush has reported may
    /// have taken what the client relies on, such as writes of an earlier client of the same
    /// program: its Flush is the one that reports it.
    #[must_use]
    pub fn of(device: &dyn Device) -> Self {
        let losses = Self(Arc::default());
        losses.begin(device);
        losses
    }

    /// Notes that another client takes the place of this one, and begins now.
    pub(crate) fn begin(&self, device: &dyn Device) {
        let known = device.cache_losses().saturating_add(1);
        self.0.store(known, Ordering::SeqCst);
    }

    /// Notes that writes of the client may have been lost before this process served it: its next
    /// Flush, and those that are submitted before that one has failed, report it.
    pub fn lost_before(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Returns one more than the number of losses that the client knows of, or 0.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the result of a Flush of the client's, which had the count `known` when it
    /// submitted it; `losses` were known when it was done.
    pub(crate) fn judge(
        &self,
        result: Result<(), BlockError>,
        losses: Option<u32>,
        known: u32,
    ) -> Result<(), BlockError> {
        let count = losses.map_or(1, |losses| losses.saturating_add(1));
        match (result, losses) {
            (Ok(()), _) | (Err(BlockError::CacheLost), Some(_)) if count <= known => Ok(()),
            (Ok(()), _) | (Err(BlockError::CacheLost), Some(_)) => {
                self.0.fetch_max(count, Ordering::SeqCst);
                Err(BlockError::CacheLost)
            }
            _ => result,
        }
    }
}
