//! Preemption: whether another thread had this thread's processor.
//!
//! A thread that was away for long after a yield may have let another thread run, or a hypervisor
//! may have run another virtual machine. Only the kernel's count of context switches distinguishes
//! these.
#![allow(unsafe_code)] // `getrusage` for a single thread.

use std::cell::Cell;
use std::mem::MaybeUninit;

/// Returns true if another thread had the calling thread's processor since the last call. A switch
/// between two intervals of interest counts for the later one: a thread on a shared processor may
/// have been preempted in that one, too.
pub(crate) fn was_preempted() -> bool {
    thread_local! {
        static SEEN: Cell<libc::c_long> = const { Cell::new(0) };
    }
    let switches = switches();
    SEEN.replace(switches) != switches
}

/// Returns the number of involuntary context switches of the calling thread.
fn switches() -> libc::c_long {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` there, and cannot refuse: the pointer is good and
    // the kind is known since Linux 2.6.26.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: zeroes are a valid `rusage`, whatever the kernel wrote over them.
    unsafe { usage.assume_init() }.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_thread_on_the_same_processor_is_seen() {
        let core = placement::allowed_cores().expect("the set is known")[0];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                placement::pin_to(core).expect("one of the set");
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            placement::pin_to(core).expect("one of the set");
            was_preempted();
            // Two threads on one processor alternate, whichever the scheduler.
            while !was_preempted() {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
