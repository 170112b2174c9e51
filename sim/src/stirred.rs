//! Cores on which something may have happened: what the world looks at, rather than at all of them.

use std::sync::{Arc, Mutex, PoisonError};

/// The number of a core's driver among all of its world.
pub(crate) type CoreNumber = u32;

/// Numbers of cores on which something may have happened since they were looked at; each clone is
/// the same list. Other threads of the production code may hold a core's waker, so it is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stirred(Arc<Mutex<Vec<CoreNumber>>>);

impl Stirred {
    /// Something may have happened on this core.
    pub(crate) fn add(&self, core: CoreNumber) {
        let mut cores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cores.push(core);
    }

    /// Moves all of them into `cores`, which it empties before.
    pub(crate) fn take(&self, cores: &mut Vec<CoreNumber>) {
        cores.clear();
        let mut stirred = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *stirred, cores);
    }
}
