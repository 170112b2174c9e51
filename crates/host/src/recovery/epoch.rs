//! The epoch of an association, and the connections that are open under it.
//!
//! Who loses an association and who opens a connection under it do not wait for each other. The
//! loser moves the epoch on *before* it looks whether connections are open; a channel counts its
//! connection *before* it looks whether the epoch is still the one it knows. Of the two, one always
//! sees the other: once the epoch has moved and none is open, none comes any more. The same holds
//! for the last connection that closes, whose channel wakes the controller that waits for it.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What phase an association is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was never live yet.
    Connecting,
    /// Requests flow.
    Live,
    /// It was lost, and the next one is being made.
    Recovering,
    /// It will not come back: closed, refused for good, or out of time.
    Gone,
}

impl Phase {
    /// Whether an association is being made.
    pub(crate) const fn is_making(self) -> bool {
        matches!(self, Self::Connecting | Self::Recovering)
    }
}

/// A phase, and how many associations there have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
}

impl Epoch {
    const fn pack(self) -> u64 {
        let phase = match self.phase {
            Phase::Connecting => 0,
            Phase::Live => 1,
            Phase::Recovering => 2,
            Phase::Gone => 3,
        };
        self.generation << 2 | phase
    }

    const fn unpack(bits: u64) -> Self {
        let phase = match bits & 3 {
            0 => Phase::Connecting,
            1 => Phase::Live,
            2 => Phase::Recovering,
            _ => Phase::Gone,
        };
        Self {
            generation: bits >> 2,
            phase,
        }
    }
}

/// The epoch that a controller and its channels agree on.
#[derive(Debug)]
pub(crate) struct SharedEpoch {
    bits: AtomicU64,
    /// I/O connections that are not closed.
    open: AtomicU32,
}

impl SharedEpoch {
    /// An association that was never live yet.
    pub(crate) fn new() -> Self {
        let start = Epoch {
            generation: 0,
            phase: Phase::Connecting,
        };
        Self {
            bits: AtomicU64::new(start.pack()),
            open: AtomicU32::new(0),
        }
    }

    /// Returns the epoch: one load of a line that hardly ever changes.
    #[inline]
    pub(crate) fn get(&self) -> Epoch {
        Epoch::unpack(self.bits.load(Ordering::SeqCst))
    }

    /// Moves on.
    pub(crate) fn set(&self, epoch: Epoch) {
        self.bits.store(epoch.pack(), Ordering::SeqCst);
        // Orders the move before a look at what is open, as `enter` and `leave` order their counts
        // before their looks.
        fence(Ordering::SeqCst);
    }

    /// The association of this generation is lost. Returns true for the first who says so.
    pub(crate) fn lose(&self, generation: u64) -> bool {
        let in_phase = |phase| Epoch { generation, phase }.pack();
        let (live, lost) = (in_phase(Phase::Live), in_phase(Phase::Recovering));
        let moved = (self.bits).compare_exchange(live, lost, Ordering::SeqCst, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        moved.is_ok()
    }

    /// A connection is about to be opened under `epoch`. Returns false where the epoch is another
    /// one by now; whether it is opened or not, [`leave`](Self::leave) follows.
    pub(crate) fn enter(&self, epoch: Epoch) -> bool {
        self.open.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.get() == epoch
    }

    /// A connection is closed, or was not opened. Returns true where somebody may wait for that:
    /// it was the last one of an association that is lost.
    pub(crate) fn leave(&self) -> bool {
        let before = self.open.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "what is left was entered");
        fence(Ordering::SeqCst);
        before == 1 && self.get().phase != Phase::Live
    }

    /// Returns the connections that are open.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::SeqCst)
    }
}

/// Run by `scripts/test`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    const LIVE: Epoch = Epoch {
        generation: 1,
        phase: Phase::Live,
    };

    fn live() -> Arc<SharedEpoch> {
        let epoch = SharedEpoch::new();
        epoch.set(LIVE);
        Arc::new(epoch)
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        // More switches out of turn take minutes.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Two channels open and close a connection each while the association is lost.
    #[test]
    fn loom_no_connection_of_a_lost_association_is_overlooked() {
        check(|| {
            let epoch = live();
            let connected = Arc::new(AtomicU32::new(0));
            let next = Arc::new(AtomicBool::new(false));
            let wakes = Arc::new(AtomicU32::new(0));
            let channels: Vec<_> = (0..2)
                .map(|_| {
                    let (epoch, connected) = (epoch.clone(), connected.clone());
                    let (next, wakes) = (next.clone(), wakes.clone());
                    thread::spawn(move || {
                        if epoch.enter(LIVE) {
                            connected.fetch_add(1, Ordering::AcqRel);
                            assert!(!next.load(Ordering::Acquire), "it came too late");
                            connected.fetch_sub(1, Ordering::AcqRel);
                        }
                        if epoch.leave() {
                            wakes.fetch_add(1, Ordering::AcqRel);
                        }
                    })
                })
                .collect();
            assert!(epoch.lose(1));
            let waits = epoch.open() > 0;
            if !waits {
                assert_eq!(connected.fetch_add(0, Ordering::AcqRel), 0);
                next.store(true, Ordering::Release);
            }
            for channel in channels {
                channel.join().unwrap();
            }
            assert!(
                !waits || wakes.load(Ordering::Acquire) > 0,
                "nobody wakes it"
            );
        });
    }

    #[test]
    fn loom_a_loss_is_reported_once() {
        check(|| {
            let epoch = live();
            let other = epoch.clone();
            let reporter = thread::spawn(move || other.lose(1));
            let first = epoch.lose(1);
            assert!(first != reporter.join().unwrap());
            assert_eq!(epoch.get().phase, Phase::Recovering);
        });
    }
}
