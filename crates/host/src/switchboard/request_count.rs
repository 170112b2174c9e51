//! Counts of a submitter's requests: submitted and answered.
//!
//! The dataplane threads, through which its requests went, know a submitter by a number until none
//! of them is on its way any more; then each lets go of it, and the number may be another's.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a submitter's requests.
#[derive(Debug)]
pub(super) struct Account {
    /// Requests put into an ingress so far; written by the submitter alone.
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

    /// A request was put into an ingress. Said by the submitter.
    #[inline]
    pub(super) fn asked(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked.store(asked + 1, Ordering::Relaxed);
    }

    /// A request is over: nothing of it is anywhere but with the submitter.
    #[inline]
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Release);
    }

    /// Requests that were put into an ingress and are not over, nearly: it may be asking.
    #[inline]
    pub(super) fn under_way(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        asked.saturating_sub(self.answered.load(Ordering::Relaxed))
    }

    /// Returns true if no request is on its way, in any queue or lane. Asked after the submitter
    /// left: a message said so, and it has asked for nothing since.
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
        /// Requests that were taken and are not over.
        in_hand: AtomicU32,
        /// The message that it leaves.
        left: AtomicBool,
    }

    /// A dataplane thread takes a request, if there is one, answers it, and lets go of the
    /// submitter when it may. Returns its handle where it may not yet.
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

    /// A submitter asks twice and leaves while two threads serve: one that lets go of it finds
    /// nothing of it on its way, and its number is free only when both have.
    #[test]
    fn loom_a_number_is_used_again_when_nothing_of_its_submitter_is_on_its_way() {
        let mut builder = loom::model::Builder::new();
        // More switches out of turn take minutes.
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
            // As the registry does before it gives the number to another one.
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
