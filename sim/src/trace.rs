//! The trace of a run, step by step, to diagnose a failure.
//!
//! A run and its listener are on one thread: the listener is thread-local, and no simulated part
//! carries it.

use std::cell::{Cell, RefCell};

/// Takes a line for each step.
pub type Listener = Box<dyn FnMut(String)>;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Sends the trace of this thread's runs to `listener`; `None` turns it off.
pub fn listen(listener: Option<Listener>) {
    ON.set(listener.is_some());
    LISTENER.set(listener);
}

/// Reports an event. Its text is only built if a listener is set.
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
