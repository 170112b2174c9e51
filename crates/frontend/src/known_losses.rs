//! The losses of a device's volatile cache that were reported to a client.

use block::{BlockError, Device};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The losses of a device's volatile cache that one client of a front end knows of.
///
/// Clients share the channels of a core, and a channel reports a loss only to the first Flush after
/// it. Each client must learn of every loss, because its own writes may be among the lost ones, and
/// exactly once, whichever channel carries its Flushes.
#[derive(Clone, Debug)]
pub struct KnownLosses(
    /// Number of known losses plus 1; 0 if the client does not know of a loss before this process
    /// either.
    Arc<AtomicU32>,
);

impl KnownLosses {
    /// Creates a client that knows all losses reported before it began. A loss that no Flush has
    /// reported yet may have taken data that the client relies on, such as writes of an earlier
    /// client of the same program; this client's Flush reports it.
    #[must_use]
    pub fn of(device: &dyn Device) -> Self {
        let losses = Self(Arc::default());
        losses.begin(device);
        losses
    }

    /// Replaces this client with a new one that begins now.
    pub(crate) fn begin(&self, device: &dyn Device) {
        let known = device.cache_losses().saturating_add(1);
        self.0.store(known, Ordering::SeqCst);
    }

    /// Records that writes of the client may have been lost before this process served it. Its next
    /// Flush reports the loss, and so do Flushes submitted before that one has failed.
    pub fn lost_before(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Returns the number of losses that the client knows of plus 1, or 0.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the result of a client's Flush that was submitted with the count `known`; `losses`
    /// is the count at its completion.
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
