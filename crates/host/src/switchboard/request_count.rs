//! Counts of a submitter's requests: submitted and answered.
//!
//! The dataplane threads of its requests know a submitter by its number. Each removes it once none
//! of its requests is in flight; the number may then be reused.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a submitter's requests.
#[derive(Debug)]
pub(super) struct Account {
    /// Requests put into an ingress so far; written only by the submitter.
    asked: AtomicU64,
    /// Requests answered so far, by any dataplane thread.
    answered: AtomicU64,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }

    /// Counts a request put into an ingress. Called by the submitter.
    #[inline]
    pub(super) fn asked(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked.store(asked + 1, Ordering::Relaxed);
    }

    /// Counts a request that has ended: only the submitter still has it.
    #[inline]
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Release);
    }

    /// Returns the requests put into an ingress that have not ended. Approximate while the
    /// submitter is submitting.
    #[inline]
    pub(super) fn under_way(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        asked.saturating_sub(self.answered.load(Ordering::Relaxed))
    }

    /// Returns true if no request is in any queue or lane. Called after the submitter's message
    /// that it left; it has submitted nothing since.
    pub(super) fn is_quiet(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed)
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, AtomicU32};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// State that a submitter and two dataplane threads share.
    struct Shared {
        account: Account,
        /// Requests in an ingress.
        queue: Mutex<u32>,
        /// Requests that were taken and have not ended.
        in_hand: AtomicU32,
        /// The message that the submitter leaves.
        left: AtomicBool,
    }

    /// A dataplane thread takes a request, if there is one, answers it, and drops the submitter if
    /// it may. Returns its handle if it may not yet.
    fn serve(shared: Arc<Shared>) -> Option<Arc<Shared>> {
        let mut queue = shared.queue.lock().unwrap();
        let takes = *queue > 0;
        if takes {
            *queue -= 1;
            shared.in_hand.fetch_add(1, Ordering::Relaxed);
        }
        drop(queue);
        if takes {
            shared.in_hand.fetch_sub(1, Ordering::Relaxed);
            shared.account.answered();
        }
        if shared.left.load(Ordering::Acquire) && shared.account.is_quiet() {
            let on_its_way = *shared.queue.lock().unwrap();
            assert_eq!(on_its_way + shared.in_hand.load(Ordering::Relaxed), 0);
            return None;
        }
        Some(shared)
    }

    /// A submitter submits twice and leaves while two threads serve: a thread that drops it finds
    /// none of its requests in flight, and its number is free only when both threads have dropped
    /// it.
    #[test]
    fn loom_a_number_is_used_again_when_nothing_of_its_submitter_is_on_its_way() {
        let mut builder = loom::model::Builder::new();
        // More preemptions take minutes.
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Arc::new(Shared {
                account: Account::new(),
                queue: Mutex::new(0),
                in_hand: AtomicU32::new(0),
                left: AtomicBool::new(false),
            });
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let known = shared.clone();
                    thread::spawn(move || serve(known))
                })
                .collect();
            for _ in 0..2 {
                *shared.queue.lock().unwrap() += 1;
                shared.account.asked();
            }
            assert!(shared.account.under_way() <= 2);
            shared.left.store(true, Ordering::Release);
            // As the registry does before it reuses the number.
            if Arc::strong_count(&shared) == 1 {
                assert!(shared.account.is_quiet());
                assert_eq!(*shared.queue.lock().unwrap(), 0);
            }
            let kept: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            let left = *shared.queue.lock().unwrap();
            assert_eq!(u64::from(left), shared.account.under_way());
            assert_eq!(shared.account.is_quiet(), left == 0);
            drop(kept);
        });
    }
}
