//! Channels at rest: they have nothing outstanding, and their threads may sleep.
//!
//! A controller that has lost its association does not wait for the connections of such a channel:
//! it *retires* them, which removes them from the [count](super::epoch::SharedEpoch). One atomic
//! value decides whether the channel or the controller comes first: the controller waits for a
//! channel that has ended its rest, and a retired channel closes its connections before it sends
//! anything.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const RETIRED: u32 = u32::MAX;

/// The rest of one channel: the number of its connections while it rests.
#[derive(Debug)]
pub(crate) struct Rest(AtomicU32);

impl Rest {
    /// Creates the state of a channel that does not rest.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Begins a rest with `open` connections. The channel reads the epoch after that, and
    /// [retires](Self::retire) them itself if the association is lost.
    pub(crate) fn begin(&self, open: u32) {
        self.0.store(open, Ordering::SeqCst);
        // Orders the start of the rest before the read of the epoch: of a channel that begins to
        // rest and a controller that loses the association, at least one sees the other.
        fence(Ordering::SeqCst);
    }

    /// Ends the rest. Returns false if the connections are retired.
    pub(crate) fn end(&self) -> bool {
        let awaken = |open| (open != RETIRED).then_some(AWAKE);
        let ended = (self.0).fetch_update(Ordering::SeqCst, Ordering::SeqCst, awaken);
        ended.is_ok()
    }

    /// Retires the connections of a channel that rests. Returns their number, once.
    pub(crate) fn retire(&self) -> u32 {
        let retired = |open| (open != AWAKE && open != RETIRED).then_some(RETIRED);
        let before = (self.0).fetch_update(Ordering::SeqCst, Ordering::SeqCst, retired);
        before.unwrap_or(0)
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::recovery::epoch::{Epoch, Phase, SharedEpoch};
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    const LIVE: Epoch = Epoch {
        generation: 1,
        phase: Phase::Live,
    };

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        // More preemptions take minutes.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// A channel with a connection begins and ends its rest while the association is lost: no
    /// command is sent once the next association may be announced, and the controller never waits
    /// for a channel at rest.
    #[test]
    fn loom_a_channel_at_rest_is_not_waited_for_and_sends_nothing_late() {
        check(|| {
            let epoch = SharedEpoch::new();
            epoch.set(LIVE);
            assert!(epoch.enter(LIVE));
            let epoch = Arc::new(epoch);
            let rest = Arc::new(Rest::new());
            let next = Arc::new(AtomicBool::new(false));
            let woken = Arc::new(AtomicBool::new(false));
            let channel = {
                let (epoch, rest) = (epoch.clone(), rest.clone());
                let (next, woken) = (next.clone(), woken.clone());
                thread::spawn(move || {
                    let begin = || {
                        rest.begin(1);
                        if epoch.get() != LIVE {
                            let open = rest.retire();
                            if open > 0 && epoch.leave(open) {
                                woken.store(true, Ordering::Release);
                            }
                        }
                    };
                    begin();
                    if epoch.get() == LIVE && rest.end() {
                        assert!(!next.load(Ordering::Acquire), "it sends too late");
                        begin();
                    }
                })
            };
            assert!(epoch.lose(1));
            let open = rest.retire();
            if open > 0 {
                epoch.leave(open);
            }
            let waits = epoch.open() > 0;
            next.store(!waits, Ordering::Release);
            channel.join().unwrap();
            assert_eq!(epoch.open(), 0, "each connection is retired once");
            assert!(!waits || woken.load(Ordering::Acquire), "nothing wakes it");
        });
    }
}
