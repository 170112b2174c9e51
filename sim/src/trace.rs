//! The trace of a run, step by step, for finding out why it failed.
//!
//! A run lives on one thread, and so does what listens to it: nothing that is simulated has to
//! carry it along.

use std::cell::{Cell, RefCell};

/// Takes a line for each step.
pub type Listener = Box<dyn FnMut(String)>;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Tells this thread's runs to `listener` from now on; without one they are silent.
pub fn listen(listener: Option<Listener>) {
    ON.set(listener.is_some());
    LISTENER.set(listener);
}

/// Reports an event. Its text is only made where a listener is set.
#[inline]
pub(crate) fn say(what: impl FnOnce() -> String) {
    if ON.get() {
        let line = what();
        LISTENER.with_borrow_mut(|listener| {
            if let Some(listener) = listener {
                listener(line);
            }
        });
    }
}
