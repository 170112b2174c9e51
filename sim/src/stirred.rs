//! Cores that an event may have affected: the world checks these instead of all cores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of a core's driver among all drivers of its world.
pub(crate) type CoreNumber = u32;

/// Cores that an event may have affected, for the world and for the cores themselves.
#[derive(Debug, Default)]
pub(crate) struct Stirred {
    /// Cores that the world must check.
    cores: Vec<CoreNumber>,
    /// Cores woken by other cores, which the world must check, too.
    pub(crate) woken: Woken,
    /// Per core number, from 1: the core must check its sockets.
    changed: Vec<bool>,
}

impl Stirred {
    /// Returns a number for a new core.
    pub(crate) fn next_core(&mut self) -> CoreNumber {
        self.changed.push(true);
        CoreNumber::try_from(self.changed.len()).expect("few cores")
    }

    fn changed(&mut self, core: CoreNumber) -> &mut bool {
        &mut self.changed[core as usize - 1]
    }

    /// Notes that an event may have affected the sockets of this core.
    pub(crate) fn add(&mut self, core: CoreNumber) {
        self.cores.push(core);
        self.change(core);
    }

    /// Notes that the core must check its sockets because it changed them itself.
    pub(crate) fn change(&mut self, core: CoreNumber) {
        *self.changed(core) = true;
    }

    /// Notes that every core must check its sockets.
    pub(crate) fn change_all(&mut self) {
        self.changed.fill(true);
    }

    /// Returns true if the core must check its sockets.
    pub(crate) fn is_changed(&self, core: CoreNumber) -> bool {
        self.changed[core as usize - 1]
    }

    /// Notes that the core has checked its sockets and has no work before the next event.
    pub(crate) fn settle(&mut self, core: CoreNumber) {
        *self.changed(core) = false;
    }

    /// Moves the cores that the world must check into `cores`, which is emptied first.
    pub(crate) fn take(&mut self, cores: &mut Vec<CoreNumber>) {
        cores.clear();
        if !self.cores.is_empty() {
            std::mem::swap(&mut self.cores, cores);
        }
        self.woken.take(cores);
    }
}

/// Woken cores; each clone is the same list. It is shared because other threads of the production
/// code may hold a core's waker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Woken(Arc<WokenCores>);

#[derive(Debug, Default)]
struct WokenCores {
    /// The list is not empty.
    any: AtomicBool,
    cores: Mutex<Vec<CoreNumber>>,
}

impl Woken {
    /// Notes that this core was woken.
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
