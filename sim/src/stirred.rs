//! Cores on which something may have happened: what the world looks at, rather than at all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of a core's driver among all of its world.
pub(crate) type CoreNumber = u32;

/// Cores on which something may have happened, for the world and for the cores themselves.
#[derive(Debug, Default)]
pub(crate) struct Stirred {
    /// Cores that the world has to look at.
    cores: Vec<CoreNumber>,
    /// The same of cores that others woke.
    pub(crate) woken: Woken,
    /// By number, from 1: the core has to look at its sockets.
    changed: Vec<bool>,
}

impl Stirred {
    /// A number for one more core.
    pub(crate) fn next_core(&mut self) -> CoreNumber {
        self.changed.push(true);
        CoreNumber::try_from(self.changed.len()).expect("few cores")
    }

    fn changed(&mut self, core: CoreNumber) -> &mut bool {
        &mut self.changed[core as usize - 1]
    }

    /// Something may have happened to the sockets of this core.
    pub(crate) fn add(&mut self, core: CoreNumber) {
        self.cores.push(core);
        self.change(core);
    }

    /// The core has to look at its sockets: it changed something about them itself.
    pub(crate) fn change(&mut self, core: CoreNumber) {
        *self.changed(core) = true;
    }

    /// Every core has to look at its sockets.
    pub(crate) fn change_all(&mut self) {
        self.changed.fill(true);
    }

    /// Returns true if the core has to look at its sockets.
    pub(crate) fn is_changed(&self, core: CoreNumber) -> bool {
        self.changed[core as usize - 1]
    }

    /// The core has looked at its sockets: nothing is to be done before something happens.
    pub(crate) fn settle(&mut self, core: CoreNumber) {
        *self.changed(core) = false;
    }

    /// Moves those that the world has to look at into `cores`, which it empties before.
    pub(crate) fn take(&mut self, cores: &mut Vec<CoreNumber>) {
        cores.clear();
        if !self.cores.is_empty() {
            std::mem::swap(&mut self.cores, cores);
        }
        self.woken.take(cores);
    }
}

/// Cores that were woken; each clone is the same list. Other threads of the production code may
/// hold a core's waker, so it is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Woken(Arc<WokenCores>);

#[derive(Debug, Default)]
struct WokenCores {
    /// There are some.
    any: AtomicBool,
    cores: Mutex<Vec<CoreNumber>>,
}

impl Woken {
    /// This core was woken.
    pub(crate) fn add(&self, core: CoreNumber) {
        let mut cores = self.0.cores.lock().unwrap_or_else(PoisonError::into_inner);
        cores.push(core);
        self.0.any.store(true, Ordering::Release);
    }

    fn take(&self, out: &mut Vec<CoreNumber>) {
        if self.0.any.load(Ordering::Acquire) {
            let mut cores = self.0.cores.lock().unwrap_or_else(PoisonError::into_inner);
            out.append(&mut cores);
            self.0.any.store(false, Ordering::Release);
        }
    }
}
