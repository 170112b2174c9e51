//! What happens after a loss: when to try again, and what may be sent again.
//!
//! Pure rules; the [`Controller`](crate::Controller) and the channels apply them. The reasoning is
//! in docs/decisions/0004-replay.md.

use crate::command::BlockRequest;
use base::units::Lba;
use base::{Nanos, Prng};
use block::BlockError;
use wire::nvme::Status;

/// Delays between attempts: doubling, with jitter, so that many hosts do not come back at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Nanos,
    max: Nanos,
    attempt: u32,
    prng: Prng,
}

impl Backoff {
    pub(crate) fn new(min: Nanos, max: Nanos, seed: u64) -> Self {
        Self {
            min,
            max,
            attempt: 0,
            prng: Prng::from_seed(seed),
        }
    }

    /// How long to wait before the next attempt: between half and all of the doubled delay.
    pub(crate) fn next(&mut self) -> Nanos {
        let doubled = self.min.0.saturating_mul(1 << self.attempt.min(40));
        let delay = doubled.min(self.max.0);
        self.attempt = self.attempt.saturating_add(1);
        Nanos(delay / 2 + self.prng.below(delay / 2 + 1))
    }

    /// The connection proved stable: the next loss starts with the shortest delay.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// What a status means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is done.
    Done,
    /// Sending the same command again may help.
    Retry(BlockError),
    /// It failed.
    Failed(BlockError),
}

/// Judges the status of an I/O command. `[NVMe Base 2.0 §3.3.3.2.1]`, `[NVMe NVM 1.0 §3.1.2]`
pub(crate) fn judge(status: Status) -> Verdict {
    if status.is_success() {
        return Verdict::Done;
    }
    let error = match status.type_and_code() {
        0x001 => BlockError::Unsupported,
        0x002 | 0x00d..=0x013 | 0x016 | 0x183 => BlockError::Malformed,
        0x00b => BlockError::Gone,
        0x020 | 0x182 => BlockError::ReadOnly,
        0x021 => BlockError::TimedOut,
        0x007 | 0x008 | 0x01b | 0x371 => BlockError::Aborted,
        0x080 => BlockError::OutOfRange,
        0x081 => BlockError::NoSpace,
        0x280 => BlockError::WriteFailure,
        0x286 => BlockError::Denied,
        0x281 | 0x287 => BlockError::ReadFailure,
        0x282..=0x284 | 0x288 => BlockError::Corrupt,
        0x285 => BlockError::CompareFailure,
        _ => BlockError::Internal,
    };
    if is_passing(status) {
        Verdict::Retry(error)
    } else {
        Verdict::Failed(error)
    }
}

/// Whether a status speaks of a passing condition, and "do not retry" is not set.
pub(crate) fn is_passing(status: Status) -> bool {
    let passing = matches!(
        status.type_and_code(),
        0x004 | 0x008 | 0x021 | 0x022 | 0x082 | 0x300 | 0x303 | 0x360 | 0x370 | 0x371
    );
    passing && !status.dnr()
}

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) nsid: u32,
    pub(crate) start: u64,
    /// The first block beyond.
    pub(crate) end: u64,
}

impl Span {
    /// Everything that the request and the commands that follow it touch. The end stays the same
    /// from command to command of a split request.
    pub(crate) fn of(request: &BlockRequest) -> Self {
        let Lba(start) = request.lba;
        Self {
            nsid: request.nsid,
            start,
            end: start + u64::from(request.blocks) + u64::from(request.blocks_left),
        }
    }

    /// Whether both have a block in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.nsid == other.nsid && self.start < other.end && other.start < self.end
    }
}

/// The ranges of replayed writes. Until such a write is acknowledged, no newer write that overlaps
/// with it may leave: nobody could tell which of the two came last.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    held: Vec<Span>,
}

impl RangeLocks {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            held: Vec::with_capacity(capacity),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Locks the range of a request.
    pub(crate) fn lock(&mut self, request: &BlockRequest) {
        self.held.push(Span::of(request));
    }

    /// Unlocks a range that was locked.
    pub(crate) fn unlock(&mut self, request: &BlockRequest) {
        let span = Span::of(request);
        if let Some(place) = self.held.iter().position(|&held| held == span) {
            self.held.swap_remove(place);
        }
    }

    /// Whether a new request has to wait.
    pub(crate) fn blocks(&self, request: &BlockRequest) -> bool {
        if self.held.is_empty() || !request.operation.is_write() {
            return false;
        }
        let span = Span::of(request);
        self.held.iter().any(|held| held.overlaps(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Operation;

    fn write(lba: u64, blocks: u32) -> BlockRequest {
        BlockRequest {
            nsid: 1,
            namespace: 0,
            operation: Operation::Write { durable: false },
            lba: Lba(lba),
            blocks,
            blocks_done: 0,
            blocks_left: 0,
            private_data: false,
        }
    }

    #[test]
    fn delays_double_stay_within_bounds_and_start_over() {
        let mut backoff = Backoff::new(Nanos::from_millis(10), Nanos::from_secs(10), 1);
        let delays: Vec<_> = (0..20).map(|_| backoff.next().as_millis()).collect();
        assert!((5..=10).contains(&delays[0]), "{delays:?}");
        assert!((10..=20).contains(&delays[1]), "{delays:?}");
        assert!(
            delays[15..].iter().all(|d| (5_000..=10_000).contains(d)),
            "{delays:?}"
        );
        backoff.reset();
        assert!(backoff.next() <= Nanos::from_millis(10));
    }

    #[test]
    fn a_newer_write_waits_for_an_overlapping_replay_and_for_nothing_else() {
        let mut locks = RangeLocks::with_capacity(1);
        locks.lock(&write(10, 5));
        assert!(locks.blocks(&write(14, 1)));
        assert!(locks.blocks(&write(0, 11)));
        assert!(!locks.blocks(&write(15, 1)));
        assert!(!locks.blocks(&write(5, 5)));
        let elsewhere = BlockRequest {
            nsid: 2,
            ..write(10, 5)
        };
        assert!(!locks.blocks(&elsewhere));
        let read = BlockRequest {
            nsid: 1,
            namespace: 0,
            operation: Operation::Read,
            ..write(10, 5)
        };
        assert!(!locks.blocks(&read));
        locks.unlock(&write(10, 5));
        assert!(locks.is_empty() && !locks.blocks(&write(10, 5)));
    }

    #[test]
    fn do_not_retry_is_obeyed() {
        let again = Status::TRANSIENT_TRANSPORT_ERROR;
        assert!(matches!(judge(again), Verdict::Retry(_)));
        assert!(matches!(judge(again.with_dnr()), Verdict::Failed(_)));
        assert_eq!(judge(Status::SUCCESS), Verdict::Done);
        assert_eq!(
            judge(Status::LBA_OUT_OF_RANGE.with_dnr()),
            Verdict::Failed(BlockError::OutOfRange)
        );
        assert_eq!(
            judge(Status::ACCESS_DENIED),
            Verdict::Failed(BlockError::Denied)
        );
    }
}
