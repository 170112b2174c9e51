//! Waiting of the thread that makes a change for the cores: asleep, or, where the cores run on this
//! very thread as in a simulation, by running them.

use std::cell::RefCell;
use std::time::Duration;

/// Runs the cores until the condition holds, or as much of their time as the duration says is over.
pub type Waiter = Box<dyn FnMut(&dyn Fn() -> bool, Duration)>;

thread_local! {
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// Makes `change`; wherever it waits for the cores, `waiter` runs them on this thread instead.
pub fn wait_by<R>(waiter: Waiter, change: impl FnOnce() -> R) -> R {
    WAITER.set(Some(waiter));
    let result = change();
    WAITER.set(None);
    result
}

/// Lets the waiter of this thread run the cores until `done`, at most for `timeout`. Returns false
/// where the thread has none.
pub(crate) fn run(done: &dyn Fn() -> bool, timeout: Duration) -> bool {
    let Some(mut waiter) = WAITER.take() else {
        return false;
    };
    waiter(done, timeout);
    WAITER.set(Some(waiter));
    true
}
