//! The epoch of an association, and the connections that are open under it.
//!
//! A thread that reports the loss of an association and a thread that opens a connection under it
//! do not wait for each other. The first moves the epoch *before* it reads the number of open
//! connections; a channel counts its connection *before* it checks that the epoch is still the one
//! it knows. At least one of the two sees the other: once the epoch has moved and no connection is
//! open, none is opened any more. The same holds for the last connection that closes: its channel
//! wakes the controller that waits for that.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use std::sync::atomic::AtomicU64 as Counter;
use std::sync::atomic::Ordering::Relaxed;

base::states! {
    /// Phase of an association.
    ///
    /// ```text
    ///  Connecting ───► Live ◄───► Recovering
    ///       │           │             │
    ///       └───────────┴──► Gone ◄───┘
    /// ```
    pub enum Phase {
        /// It has never been live.
        Connecting = "connecting",
        /// Requests flow.
        Live = "live",
        /// It was lost, and the next one is being established.
        Recovering = "recovering",
        /// Final: closed, refused permanently, or lost for longer than the loss timeout.
        Gone = "gone",
    }
}

impl Phase {
    /// Returns true while an association is being established.
    pub(crate) const fn is_making(self) -> bool {
        matches!(self, Self::Connecting | Self::Recovering)
    }

    fn follows(self, before: Self) -> bool {
        match self {
            Self::Connecting => false,
            Self::Live => matches!(before, Self::Connecting | Self::Recovering),
            Self::Recovering => before == Self::Live,
            Self::Gone => true,
        }
    }
}

/// A phase, and the number of associations so far.
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

/// The epoch shared by a controller and its channels.
#[derive(Debug)]
pub(crate) struct SharedEpoch {
    bits: AtomicU64,
    /// I/O connections that are neither closed nor [retired](super::rest).
    open: AtomicU32,
    /// Number of times that each phase was entered; orders no other memory.
    entered: [Counter; 4],
}

impl SharedEpoch {
    /// Creates the epoch of an association that has never been live.
    pub(crate) fn new() -> Self {
        let start = Epoch {
            generation: 0,
            phase: Phase::Connecting,
        };
        Self {
            bits: AtomicU64::new(start.pack()),
            open: AtomicU32::new(0),
            entered: [const { Counter::new(0) }; 4],
        }
    }

    /// Returns the epoch: one load of a cache line that rarely changes.
    #[inline]
    pub(crate) fn get(&self) -> Epoch {
        Epoch::unpack(self.bits.load(Ordering::SeqCst))
    }

    /// Moves to another epoch.
    ///
    /// # Panics
    /// If the phase may not follow the current one.
    pub(crate) fn set(&self, epoch: Epoch) {
        let Epoch {
            generation,
            phase: before,
        } = self.get();
        assert!(
            epoch.generation >= generation,
            "an association that is over does not come again"
        );
        assert!(
            epoch.phase.follows(before),
            "{} does not follow {}",
            epoch.phase.name(),
            before.name()
        );
        self.bits.store(epoch.pack(), Ordering::SeqCst);
        self.count(epoch.phase);
        // Orders the move before the read of the open connections, as `enter` and `leave` order
        // their counts before their reads of the epoch.
        fence(Ordering::SeqCst);
    }

    /// Marks the association of this generation as lost. Returns true for the first report.
    pub(crate) fn lose(&self, generation: u64) -> bool {
        let in_phase = |phase| Epoch { generation, phase }.pack();
        let (live, lost) = (in_phase(Phase::Live), in_phase(Phase::Recovering));
        let moved = (self.bits).compare_exchange(live, lost, Ordering::SeqCst, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if moved.is_ok() {
            self.count(Phase::Recovering);
        }
        moved.is_ok()
    }

    /// Counts a connection that is about to be opened under `epoch`. Returns false if the epoch has
    /// moved; [`leave`](Self::leave) must follow in either case.
    pub(crate) fn enter(&self, epoch: Epoch) -> bool {
        self.open.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.get() == epoch
    }

    /// Subtracts `count` connections that are closed or retired, or one that was not opened.
    /// Returns true if a controller may wait for that: they were the last ones of a lost
    /// association.
    pub(crate) fn leave(&self, count: u32) -> bool {
        let before = self.open.fetch_sub(count, Ordering::SeqCst);
        assert!(before >= count, "what is left was entered");
        fence(Ordering::SeqCst);
        before == count && self.get().phase != Phase::Live
    }

    /// Returns the number of times that each phase was entered, in the order of [`Phase::ALL`].
    pub(crate) fn entered(&self) -> [u64; 4] {
        std::array::from_fn(|phase| self.entered[phase].load(Relaxed))
    }

    fn count(&self, phase: Phase) {
        self.entered[phase.index()].fetch_add(1, Relaxed);
    }

    /// Returns the number of connections that are open and not retired.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::SeqCst)
    }
}

/// Run by `scripts/test --all`.
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
        // More preemptions take minutes.
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
                        if epoch.leave(1) {
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
