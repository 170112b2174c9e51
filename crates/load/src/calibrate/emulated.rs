//! An emulated device in virtual time: the same seed gives the same numbers on every machine.

use super::Probe;
use crate::exponential;
use anyhow::{Result, ensure};
use base::{Nanos, Prng, Time};
use block::device::flash::{Access, Profile, Timing};
use qos::Percentile;
use qos::fit::{Kind, Measurement};

/// Bytes of a page: the unit in which flash reads and writes.
const PAGE_BYTES: u64 = 4096;

/// Time at which a load begins. A clock that begins at zero would mean a freshly programmed device.
const BEGIN: Nanos = Nanos::from_secs(1);

/// The warm-up is the measured span divided by this number.
const WARM_UP_DIVISOR: u64 = 5;

/// An emulated device in virtual time, with its own clock and no other load.
#[derive(Clone, Debug)]
pub struct Emulated {
    profile: Profile,
    pages: u64,
    span: Span,
    seed: u64,
}

/// Extent of the measurement of each load.
#[derive(Clone, Copy, Debug)]
enum Span {
    Requests(u64),
    Time(Nanos),
}

impl Emulated {
    /// A device of `bytes` bytes; each load runs for `requests` requests.
    #[must_use]
    pub const fn new(profile: Profile, bytes: u64, requests: u64, seed: u64) -> Self {
        Self {
            profile,
            pages: bytes / PAGE_BYTES,
            span: Span::Requests(requests),
            seed,
        }
    }

    /// The same; each load runs for `time`.
    #[must_use]
    pub const fn for_time(profile: Profile, bytes: u64, time: Nanos, seed: u64) -> Self {
        Self {
            profile,
            pages: bytes / PAGE_BYTES,
            span: Span::Time(time),
            seed,
        }
    }

    fn count(&self, iops: u64) -> u64 {
        match self.span {
            Span::Requests(requests) => requests,
            Span::Time(time) => {
                let count = u128::from(time.0) * u128::from(iops) / 1_000_000_000;
                u64::try_from(count).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Probe for Emulated {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a few seconds in nanoseconds"
    )]
    fn measure(&mut self, kind: Kind, iops: u64) -> Result<Measurement> {
        let pages = u64::from(kind.request_bytes).div_ceil(PAGE_BYTES);
        let places = self.pages / pages;
        ensure!(
            places > 0 && iops > 0,
            "a device of {} pages is too small for {kind}",
            self.pages
        );
        let timing = Timing::new(self.profile.parts());
        let mut random = Prng::from_seed(self.seed);
        let count = self.count(iops).max(1);
        let before = count / WARM_UP_DIVISOR;
        let mut clock = BEGIN.0 as f64;
        let (mut begin, mut end) = (Time::NEVER, Time::ZERO);
        let mut reads = Vec::new();
        let mut ends = Vec::new();
        for number in 0..before + count {
            clock += exponential(&mut random) * 1e9 / iops as f64;
            let now = Time(clock as u64);
            let page = random.below(places) * pages;
            let read = random.chance(u64::from(kind.read_permille), 1000);
            let access = if read {
                Access::Read { page, pages }
            } else {
                Access::Write { pages }
            };
            let done = timing.finish(now, access);
            ends.push(done);
            if number < before {
                continue;
            }
            begin = begin.min(now);
            end = now;
            if read {
                reads.push(done.since(now));
            }
        }
        let completed = ends
            .iter()
            .filter(|&&done| begin <= done && done <= end)
            .count();
        let span = u128::from(end.since(begin).0.max(1));
        let achieved = completed as u128 * 1_000_000_000 / span;
        Ok(Measurement {
            kind,
            offered: iops,
            achieved: u64::try_from(achieved).unwrap_or(u64::MAX),
            latency: percentiles(reads),
        })
    }
}

/// Percentiles of the latencies; zero if there were no reads.
fn percentiles(mut latencies: Vec<Nanos>) -> [Nanos; Percentile::COUNT] {
    latencies.sort_unstable();
    Percentile::ALL.map(|percentile| {
        let at = latencies.len() * percentile.permille() as usize / 1000;
        latencies.get(at).copied().unwrap_or(Nanos::ZERO)
    })
}
