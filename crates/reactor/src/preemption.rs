//! Preemption: another thread had this one's processor.
//!
//! A thread that yielded and was away for long may have let another thread run, or a hypervisor may
//! have run another machine. Only the kernel's count of switches tells which.
#![allow(unsafe_code)] // `getrusage` for a single thread.

use std::cell::Cell;
use std::mem::MaybeUninit;

/// Returns true if another thread had the calling one's processor since the last call. A switch
/// between two times of interest counts for the later one: a thread with such a neighbour may have
/// been preempted then, too.
pub(crate) fn was_preempted() -> bool {
    thread_local! {
        static SEEN: Cell<libc::c_long> = const { Cell::new(0) };
    }
    let switches = switches();
    SEEN.replace(switches) != switches
}

/// Returns how often the calling thread lost its processor to another although it wanted to run.
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
            // Two that want one processor take turns, whichever the scheduler.
            while !was_preempted() {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
