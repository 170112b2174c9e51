//! Thread scaling: the number of active threads of a target, and the distribution of queues between
//! them. `[ReFlex §3.1, §4.3]`
//!
//! In the paper, the control plane watches the load and the SLOs of all threads, and adds or
//! removes threads. Here the active threads are always the first N of the operator's list of cores.
//! In every period, the busiest thread with several queues is checked. If it is overloaded for long
//! enough, it hands queues to the least busy thread, or, if that is busy too, to a new one. If
//! fewer threads suffice for long enough, the last one hands its queues to the least busy thread
//! and sleeps.
//!
//! One [`ThreadScaling`] per target, owned by its first thread, which always runs. It only decides;
//! the execution does not depend on exact numbers. Invariants: the number of threads stays within
//! its limits; a load at which it grows is never one at which it shrinks.
//!
//! # Why it does not flap
//!
//! `n` threads grow only above a total load of `n` × [`THREAD_CALM_PERMILLE`], and `n + 1` shrink
//! only at or below it. With an alternating load, at most one thread is removed per
//! [`THREAD_DWELL`].

use crate::class::{Class, PerClass};
use crate::limits::{
    THREAD_CALM_PERMILLE, THREAD_CALM_STEPS, THREAD_DWELL, THREAD_GAP_PERMILLE,
    THREAD_LATE_PERMILLE, THREAD_PRESSED_PERMILLE, THREAD_PRESSED_STEPS, THREAD_SCALING_PERIOD,
    THREAD_SETTLE, THREAD_SHARE_DWELL,
};
use base::Time;

#[cfg(test)]
mod tests;

/// The numbers of threads that a target may use, as its operator says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadBounds {
    /// The smallest number; 0 for all of its cores where they were named to it, and one where it
    /// uses what there is.
    pub min: u32,
    /// The largest number, if there are as many cores.
    pub max: u32,
}

impl ThreadBounds {
    /// The bounds for a target on so many cores (at least one), which were `named` to it or not:
    /// 1 ≤ min ≤ max ≤ `cores`.
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

/// The numbers of threads that a target may use: 1 ≤ min ≤ max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRange {
    /// Never fewer.
    pub min: usize,
    /// Never more.
    pub max: usize,
}

/// A thread, over the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLoad {
    /// The time in which it had something to do, in thousandths.
    pub busy_permille: u32,
    /// Share of its load that the smallest of its recently active queues took, in thousandths: all
    /// of it where there is one such queue, or none.
    pub smallest_permille: u32,
    /// True if it answered more reads later than promised than the promises allow.
    pub late: bool,
}

impl ThreadLoad {
    /// A thread without work.
    pub const IDLE: Self = Self {
        busy_permille: 0,
        smallest_permille: 1000,
        late: false,
    };

    /// Returns true if it has more to do than is good for the requests that wait for it, and could
    /// share it: a queue is never divided.
    #[must_use]
    pub const fn is_pressed(self) -> bool {
        let busy = self.busy_permille;
        let pressed = busy >= THREAD_PRESSED_PERMILLE || self.late && busy >= THREAD_LATE_PERMILLE;
        pressed && self.smallest_permille <= 500
    }

    /// The part of its load, in thousandths, with which `other` is as busy as this; `None` where
    /// sharing is not worth it, or leaves the busier one no better off.
    const fn part_for(self, other: Self) -> Option<u32> {
        let gap = self.busy_permille.saturating_sub(other.busy_permille);
        if gap < THREAD_GAP_PERMILLE {
            return None;
        }
        // With room for what is rounded.
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
    /// The share, in thousandths: at most a half.
    pub permille: u32,
}

/// A step of thread scaling, for the target to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalingStep {
    /// The next thread is in use from now on, and takes over a part of another one's load.
    Grow {
        /// The thread.
        thread: usize,
        /// Share of a load that it takes over.
        part: LoadShare,
    },
    /// The last thread is in use no more, and hands all that it has to another one.
    Shrink {
        /// The thread.
        thread: usize,
        /// The thread that takes it over.
        into: usize,
    },
    /// A thread takes over a part of another one's load.
    Balance {
        /// The thread.
        thread: usize,
        /// Share of a load that it takes over.
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
    /// Times that a thread shared its load with another one in use.
    pub balanced: u64,
}

/// The thread scaling of one target.
#[derive(Clone, Debug)]
pub struct ThreadScaling {
    range: ThreadRange,
    active: usize,
    /// Time of the next look.
    next: Time,
    /// Time until which the last step does not show in the numbers yet.
    settled_at: Time,
    /// Time from which on a thread may be given up.
    shrinks_from: Time,
    /// Time from which on threads in use may share again.
    shares_from: Time,
    /// Looks in a row that found a thread pressed.
    pressed: u32,
    /// Looks in a row that found a thread too many.
    calm: u32,
    counters: ThreadScalingCounters,
}

impl ThreadScaling {
    /// Makes the thread scaling of a target with as few threads as the range allows.
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

    /// Sets another range from now on; [`step`](Self::step) leads there, one thread at a time.
    pub const fn set_range(&mut self, range: ThreadRange) {
        self.range = range;
        (self.pressed, self.calm) = (0, 0);
    }

    /// The range.
    #[must_use]
    pub const fn range(&self) -> ThreadRange {
        self.range
    }

    /// Returns the number of threads in use: the first of the list.
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

    /// Returns the time of the next look while anything is done at all; [`Time::NEVER`] where the
    /// number is fixed.
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

    /// Returns the time until which the target must look although nothing happens: one that fell
    /// silent must still shrink. [`Time::NEVER`] where there is nothing to give up.
    #[must_use]
    pub const fn deadline(&self) -> Time {
        if self.active == self.range.min {
            Time::NEVER
        } else {
            self.next()
        }
    }

    /// Returns the step to take now, if any; asked again until there is none. `threads` are by
    /// number; what is beyond its end has nothing to do.
    ///
    /// Outside of the range it leads back into it at once; within it decides when a look is
    /// [due](Self::next).
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

    /// Takes load off a pressed thread, where that helps.
    fn relieve(&mut self, now: Time, of: impl Fn(usize) -> ThreadLoad) -> Option<ScalingStep> {
        let thread = least_busy(self.active, &of);
        let part = |from: ThreadLoad| from.is_pressed().then(|| from.part_for(of(thread)))?;
        if let Some(from) = busiest(self.active, &of, |from| part(from).is_some())
            && let Some(permille) = part(of(from))
        {
            // One thread more would be one too many: they can share soon.
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

    /// Returns true if one thread less would do.
    fn has_too_many(&self, of: impl Fn(usize) -> ThreadLoad) -> bool {
        let fewer = self.active - 1;
        if self.active <= self.range.min || (0..self.active).any(|thread| of(thread).late) {
            return false;
        }
        let into = of(least_busy(fewer, &of)).busy_permille;
        // On an idle thread, the load is in no other load's way.
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

    /// Starts the observation anew after a step.
    fn changed(&mut self, now: Time) {
        (self.pressed, self.calm) = (0, 0);
        self.settled_at = now + THREAD_SETTLE;
    }
}

/// The one of the first threads that has most to do, of those that are `fit`. The lowest number
/// wins a draw.
fn busiest(
    active: usize,
    of: impl Fn(usize) -> ThreadLoad,
    fit: impl Fn(ThreadLoad) -> bool,
) -> Option<usize> {
    let fit = (0..active).rev().filter(|&thread| fit(of(thread)));
    fit.max_by_key(|&thread| of(thread).busy_permille)
}

/// The one of the first threads that has least to do. The lowest number wins a draw.
fn least_busy(active: usize, of: impl Fn(usize) -> ThreadLoad) -> usize {
    let least = (0..active).min_by_key(|&thread| of(thread).busy_permille);
    least.unwrap_or(0)
}

/// Returns the load of the first threads together, in thousandths of one.
fn load(active: usize, of: impl Fn(usize) -> ThreadLoad) -> u64 {
    (0..active)
        .map(|thread| u64::from(of(thread).busy_permille))
        .sum()
}

/// Returns the load that `threads` threads carry with ease together, in thousandths of one.
fn calm(threads: usize) -> u64 {
    u64::from(THREAD_CALM_PERMILLE).saturating_mul(threads as u64)
}

const fn count(so_far: u32, again: bool) -> u32 {
    if again { so_far.saturating_add(1) } else { 0 }
}

/// The thread that gets a new queue of `class`, of those that have so many `queues` of each class:
/// one with the fewest. Of several it is one with the fewest of other classes, so that classes
/// share a thread only where there are more queues of one than fit elsewhere: a thread that serves
/// `Latency` holds `Throughput` up, and what is apart from the beginning need not be moved. Of
/// several again it is the first. `None` without threads.
pub fn deal(class: Class, queues: impl IntoIterator<Item = PerClass<usize>>) -> Option<usize> {
    let ranked = queues.into_iter().zip(0..).map(|(queues, thread)| {
        let all: usize = queues.iter().map(|(_, count)| count).sum();
        (all, all - queues[class], thread)
    });
    ranked.min().map(|(.., thread)| thread)
}

/// Brings those of a thread's queues to the front that are to leave it, so that about `permille`
/// (at most 500) of its load goes. Returns how many they are. Each queue is a name and its load.
///
/// Largest first, as long as they fit. Where none does, the smallest goes if that leaves the
/// busier of the two threads with less than now; a queue with all of the load stays.
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
