//! What happens in a run, step by step, for whoever wants to know why it failed.
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

/// From now on this thread's runs are told to `listener`; nobody hears of them without one.
pub fn listen(listener: Option<Listener>) {
    ON.set(listener.is_some());
    LISTENER.set(listener);
}

/// Something happened. What it was is only asked where somebody listens.
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
