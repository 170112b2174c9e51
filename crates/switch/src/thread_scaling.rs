//! Thread scaling: how many threads a target uses, and how queues move. `[ReFlex §3.1, §4.3]`
//!
//! Threads follow the operator's list of cores; the first N are in use. Every period the busiest
//! thread that can share load is checked. If pressed for long enough, it shares with the least busy
//! thread, or with one more if that one is busy. If fewer threads suffice for long enough, the last
//! one hands its queues to the least busy other thread and sleeps. One [`ThreadScaling`] per
//! target, owned by its first thread, which always runs. No flapping: `n` threads grow only above
//! `n` times [`THREAD_CALM_PERMILLE`] of total load; `n + 1` shrink only at or below it, at most
//! once per [`THREAD_DWELL`]. Invariant: stays within its bounds; never grows to where the same
//! load lets it shrink. The caller must not rely on its numbers.

use crate::class::{Class, PerClass};
use crate::limits::{
    THREAD_CALM_PERMILLE, THREAD_CALM_STEPS, THREAD_DWELL, THREAD_GAP_PERMILLE,
    THREAD_LATE_PERMILLE, THREAD_PRESSED_PERMILLE, THREAD_PRESSED_STEPS, THREAD_SCALING_PERIOD,
    THREAD_SETTLE, THREAD_SHARE_DWELL,
};
use base::Time;

#[cfg(test)]
mod tests;

/// The number of threads that a target may use, as configured by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadBounds {
    /// Minimum; 0: all cores if the operator listed them, otherwise one.
    pub min: u32,
    /// Maximum, limited by the number of cores.
    pub max: u32,
}

impl ThreadBounds {
    /// Returns the range for a target on `cores` cores (at least one), which the operator listed
    /// (`named`) or not: 1 ≤ min ≤ max ≤ `cores`.
    #[must_use]
    pub fn on(self, cores: usize, named: bool) -> ThreadRange {
        let limit = |bound: u32| usize::try_from(bound).unwrap_or(usize::MAX);
        let max = limit(self.max).clamp(1, cores.max(1));
        let min = match self.min {
            0 if named => max,
            min => limit(min).clamp(1, max),
        };
        ThreadRange { min, max }
    }
}

/// The number of threads that a target may use: 1 ≤ min ≤ max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRange {
    /// Minimum.
    pub min: usize,
    /// Maximum.
    pub max: usize,
}

/// The load of a thread in the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLoad {
    /// Busy time, in thousandths.
    pub busy_permille: u32,
    /// Share of its load from the smallest of its recently active queues, in thousandths: 1,000 if
    /// there is one such queue, or none.
    pub smallest_permille: u32,
    /// True if more reads missed their SLO's latency than its percentile allows.
    pub late: bool,
}

impl ThreadLoad {
    /// A thread without work.
    pub const IDLE: Self = Self {
        busy_permille: 0,
        smallest_permille: 1000,
        late: false,
    };

    /// Returns true if its load delays waiting requests and can be shared: a queue is never
    /// divided.
    #[must_use]
    pub const fn is_pressed(self) -> bool {
        let busy = self.busy_permille;
        let pressed = busy >= THREAD_PRESSED_PERMILLE || self.late && busy >= THREAD_LATE_PERMILLE;
        pressed && self.smallest_permille <= 500
    }

    /// Returns the part of its load, in thousandths, whose transfer makes `other` equally busy;
    /// `None` if sharing is not worthwhile, or would not relieve the busier thread.
    const fn part_for(self, other: Self) -> Option<u32> {
        let gap = self.busy_permille.saturating_sub(other.busy_permille);
        if gap < THREAD_GAP_PERMILLE {
            return None;
        }
        // With room for rounding.
        let permille = gap.saturating_mul(500) / self.busy_permille;
        if self.smallest_permille + 4 > 2 * permille {
            return None;
        }
        Some(permille)
    }
}

/// A part of one thread's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadShare {
    /// The thread that has the load.
    pub of: usize,
    /// The share in thousandths, at most 500.
    pub permille: u32,
}

/// A step of thread scaling, executed by the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalingStep {
    /// The next thread comes into use and takes over a part of another thread's load.
    Grow {
        /// The thread.
        thread: usize,
        /// The part that it takes over.
        part: LoadShare,
    },
    /// The last thread goes out of use and hands all its queues to another one.
    Shrink {
        /// The thread.
        thread: usize,
        /// The thread that takes it over.
        into: usize,
    },
    /// A thread in use takes over a part of another one's load.
    Balance {
        /// The thread.
        thread: usize,
        /// The part that it takes over.
        part: LoadShare,
    },
}

/// Counters of thread scaling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadScalingCounters {
    /// Threads taken into use.
    pub grown: u64,
    /// Threads put to sleep.
    pub shrunk: u64,
    /// Number of times that a thread shared its load with another one in use.
    pub balanced: u64,
}

/// The thread scaling of one target.
#[derive(Clone, Debug)]
pub struct ThreadScaling {
    range: ThreadRange,
    active: usize,
    /// Time of the next check.
    next: Time,
    /// Time until which the measurements do not reflect the last step.
    settled_at: Time,
    /// Time from which a thread may be removed.
    shrinks_from: Time,
    /// Time from which threads in use may share again.
    shares_from: Time,
    /// Consecutive checks that found a thread pressed.
    pressed: u32,
    /// Consecutive checks that found a surplus thread.
    calm: u32,
    counters: ThreadScalingCounters,
}

impl ThreadScaling {
    /// Creates the scaling of a target with the minimum number of threads.
    #[must_use]
    pub const fn new(range: ThreadRange) -> Self {
        Self {
            range,
            active: range.min,
            next: Time::ZERO,
            settled_at: Time::ZERO,
            shrinks_from: Time::ZERO,
            shares_from: Time::ZERO,
            pressed: 0,
            calm: 0,
            counters: ThreadScalingCounters {
                grown: 0,
                shrunk: 0,
                balanced: 0,
            },
        }
    }

    /// Sets another range; [`step`](Self::step) moves into it, one thread at a time.
    pub const fn set_range(&mut self, range: ThreadRange) {
        self.range = range;
        (self.pressed, self.calm) = (0, 0);
    }

    /// The range.
    #[must_use]
    pub const fn range(&self) -> ThreadRange {
        self.range
    }

    /// Returns the number of threads in use, the first of the list.
    #[must_use]
    pub const fn active(&self) -> usize {
        self.active
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> &ThreadScalingCounters {
        &self.counters
    }

    /// Returns true if the number of threads depends on the load.
    #[must_use]
    pub const fn is_elastic(&self) -> bool {
        self.range.min < self.range.max
    }

    /// Returns the time of the next check; [`Time::NEVER`] if the number of threads is fixed.
    #[must_use]
    pub const fn next(&self) -> Time {
        if self.active < self.range.min || self.active > self.range.max {
            Time::ZERO
        } else if self.is_elastic() {
            self.next
        } else {
            Time::NEVER
        }
    }

    /// Returns the time until which checks are required even without events, so that an idle target
    /// still shrinks. [`Time::NEVER`] if no thread can be removed.
    #[must_use]
    pub const fn deadline(&self) -> Time {
        if self.active == self.range.min {
            Time::NEVER
        } else {
            self.next()
        }
    }

    /// Returns the next step, or `None`; call it until it returns `None`. `threads` are indexed by
    /// number; threads beyond its end are idle.
    ///
    /// Outside the range it returns a step towards it at once; within the range it acts when a
    /// check is [due](Self::next).
    pub fn step(&mut self, now: Time, threads: &[ThreadLoad]) -> Option<ScalingStep> {
        let of = |thread: usize| threads.get(thread).copied().unwrap_or(ThreadLoad::IDLE);
        if self.active > self.range.max {
            return Some(self.shrink(now, of));
        }
        if self.active < self.range.min {
            let from = busiest(self.active, of, |_| true).unwrap_or(0);
            return Some(self.grow(now, from));
        }
        if !self.is_elastic() || now < self.next {
            return None;
        }
        self.next = now + THREAD_SCALING_PERIOD;
        let pressed = (0..self.active).any(|thread| of(thread).is_pressed());
        self.pressed = count(self.pressed, pressed);
        self.calm = count(self.calm, self.has_too_many(of));
        if now < self.settled_at {
            return None;
        }
        if self.pressed >= THREAD_PRESSED_STEPS
            && let Some(step) = self.relieve(now, of)
        {
            return Some(step);
        }
        let shrinks = self.calm >= THREAD_CALM_STEPS && now >= self.shrinks_from;
        shrinks.then(|| self.shrink(now, of))
    }

    /// Relieves a pressed thread if possible.
    fn relieve(&mut self, now: Time, of: impl Fn(usize) -> ThreadLoad) -> Option<ScalingStep> {
        let thread = least_busy(self.active, &of);
        let part = |from: ThreadLoad| from.is_pressed().then(|| from.part_for(of(thread)))?;
        if let Some(from) = busiest(self.active, &of, |from| part(from).is_some())
            && let Some(permille) = part(of(from))
        {
            // An additional thread would be too many: threads in use can share soon.
            if now < self.shares_from {
                return None;
            }
            self.counters.balanced += 1;
            self.shares_from = now + THREAD_SHARE_DWELL;
            self.changed(now);
            let part = LoadShare { of: from, permille };
            return Some(ScalingStep::Balance { thread, part });
        }
        let from = busiest(self.active, &of, ThreadLoad::is_pressed)?;
        let grows = self.active < self.range.max && load(self.active, &of) > calm(self.active);
        grows.then(|| self.grow(now, from))
    }

    /// Returns true if one thread fewer would suffice.
    fn has_too_many(&self, of: impl Fn(usize) -> ThreadLoad) -> bool {
        let fewer = self.active - 1;
        if self.active <= self.range.min || (0..self.active).any(|thread| of(thread).late) {
            return false;
        }
        let into = of(least_busy(fewer, &of)).busy_permille;
        // On an idle thread, the load disturbs no other load.
        let fits = into == 0 || into + of(fewer).busy_permille < THREAD_PRESSED_PERMILLE;
        fits && load(self.active, &of) <= calm(fewer)
    }

    fn grow(&mut self, now: Time, from: usize) -> ScalingStep {
        assert!(
            self.active < self.range.max,
            "a target grows within its range"
        );
        let thread = self.active;
        self.active += 1;
        self.counters.grown += 1;
        self.shrinks_from = now + THREAD_DWELL;
        self.changed(now);
        let permille = 500;
        let part = LoadShare { of: from, permille };
        ScalingStep::Grow { thread, part }
    }

    fn shrink(&mut self, now: Time, of: impl Fn(usize) -> ThreadLoad) -> ScalingStep {
        assert!(self.active > 1, "a target keeps one thread");
        self.active -= 1;
        self.counters.shrunk += 1;
        self.shrinks_from = now + THREAD_DWELL;
        self.changed(now);
        ScalingStep::Shrink {
            thread: self.active,
            into: least_busy(self.active, of),
        }
    }

    /// Restarts the observation after a step.
    fn changed(&mut self, now: Time) {
        (self.pressed, self.calm) = (0, 0);
        self.settled_at = now + THREAD_SETTLE;
    }
}

/// Returns the busiest of the first threads among those that are `fit`. The lowest number wins a
/// tie.
fn busiest(
    active: usize,
    of: impl Fn(usize) -> ThreadLoad,
    fit: impl Fn(ThreadLoad) -> bool,
) -> Option<usize> {
    let fit = (0..active).rev().filter(|&thread| fit(of(thread)));
    fit.max_by_key(|&thread| of(thread).busy_permille)
}

/// Returns the least busy of the first threads. The lowest number wins a tie.
fn least_busy(active: usize, of: impl Fn(usize) -> ThreadLoad) -> usize {
    let least = (0..active).min_by_key(|&thread| of(thread).busy_permille);
    least.unwrap_or(0)
}

/// Returns the total load of the first threads, in thousandths of one thread.
fn load(active: usize, of: impl Fn(usize) -> ThreadLoad) -> u64 {
    (0..active)
        .map(|thread| u64::from(of(thread).busy_permille))
        .sum()
}

/// Returns the total load that `threads` threads carry easily, in thousandths of one thread.
fn calm(threads: usize) -> u64 {
    u64::from(THREAD_CALM_PERMILLE).saturating_mul(threads as u64)
}

const fn count(so_far: u32, again: bool) -> u32 {
    if again { so_far.saturating_add(1) } else { 0 }
}

/// Returns the thread for a new queue of `class`; `queues` are the numbers of queues of each
/// thread, by class. Chooses the fewest queues of `class`, then the fewest of other classes, then
/// the first thread; `None` without threads. Classes therefore share a thread only if one class has
/// more queues than there are other threads: `Throughput` delays `Latency` on the same thread, and
/// queues separated from the start need no move.
pub fn deal(class: Class, queues: impl IntoIterator<Item = PerClass<usize>>) -> Option<usize> {
    let ranked = queues.into_iter().zip(0..).map(|(queues, thread)| {
        let all: usize = queues.iter().map(|(_, count)| count).sum();
        (all, all - queues[class], thread)
    });
    ranked.min().map(|(.., thread)| thread)
}

/// Moves those of a thread's queues to the front that should leave it, so that about `permille` (at
/// most 500) of its load leaves. Returns their number. Each queue is an identifier and its load.
///
/// Takes the largest queues first while they fit. If none fits, the smallest leaves if that lowers
/// the load of the busier of the two threads; a queue with the entire load stays.
pub fn choose<T>(queues: &mut [(T, u64)], permille: u32) -> usize {
    let total = queues.iter().map(|queue| u128::from(queue.1)).sum::<u128>();
    let wanted = total * u128::from(permille.min(500)) / 1000;
    queues.sort_unstable_by_key(|queue| std::cmp::Reverse(queue.1));
    let (mut chosen, mut left) = (0, wanted);
    for index in 0..queues.len() {
        let load = u128::from(queues[index].1);
        if load > 0 && load <= left {
            left -= load;
            queues.swap(chosen, index);
            chosen += 1;
        }
    }
    let smallest = (0..queues.len()).rev().find(|&index| queues[index].1 > 0);
    if chosen == 0
        && let Some(index) = smallest
        && u128::from(queues[index].1) < 2 * wanted
    {
        queues.swap(0, index);
        chosen = 1;
    }
    chosen
}
